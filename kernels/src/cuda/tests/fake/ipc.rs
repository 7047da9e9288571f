//! Memory that processes read from each other, each with a GPU.

use std::cell::Cell;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;

use bytemuck::{Pod, Zeroable};

use super::{ALONE, alone};
use crate::cuda::{DeviceBuffer, Gpu, GpuError, IpcHandle};
use crate::{CacheHits, DeviceCache, DeviceHits, DeviceTable, RowHandles, RowStore};

/// `RANK FOLDER`, of a process that is a rank.
const RANK: &str = "GSPLIT_TEST_RANK";

/// A process that is a rank of a test.
struct Place {
    rank: usize,
    size: usize,
    gpu: Gpu,
    /// Folder that all write what they tell the others into.
    folder: PathBuf,
    told: Cell<usize>,
}

impl Place {
    /// Values that each rank tells all, in their order. Ends without an answer where one has ended before it told.
    fn tell<T: Pod>(&self, told: &[T]) -> Option<Vec<T>> {
        let round = self.told.replace(self.told.get() + 1);
        let name = |word: &str, rank: usize| self.folder.join(format!("{word} {round} {rank}"));
        fs::write(name("new", self.rank), bytemuck::cast_slice(told)).unwrap();
        fs::rename(name("new", self.rank), name("told", self.rank)).unwrap();
        let mut all = Vec::new();
        for rank in 0..self.size {
            while !name("told", rank).exists() {
                if self.folder.join(format!("ended {rank}")).exists() {
                    return None;
                }
                thread::sleep(Duration::from_millis(5));
            }
            all.extend(bytemuck::pod_collect_to_vec::<u8, T>(&fs::read(name("told", rank)).unwrap()));
        }
        Some(all)
    }

    fn meet(&self) -> Option<()> {
        self.tell::<u8>(&[]).map(|_| ())
    }
}

/// The place of this process in `test`, if it is a rank. Otherwise processes of `size` ranks pass, but the one that the
/// fake stops with words.
fn rank(test: &str, size: usize, stopped: Option<(usize, &str)>, variables: &[(&str, &str)]) -> Option<Place> {
    let devices = size.to_string();
    let variables: Vec<_> = variables.iter().copied().chain([("FAKE_CUDA_DEVICES", devices.as_str())]).collect();
    if !alone(test, &variables) {
        return None;
    }
    // A test of several sizes begins with its first here too.
    let size = std::env::var("FAKE_CUDA_DEVICES").unwrap().parse().unwrap();
    if let Ok(place) = std::env::var(RANK) {
        let (rank, folder) = place.split_once(' ').unwrap();
        let rank = rank.parse().unwrap();
        let gpu = Gpu::open(rank).unwrap().side_stream().unwrap();
        return Some(Place { rank, size, gpu, folder: folder.into(), told: Cell::new(0) });
    }
    let folder = tempfile::tempdir().unwrap();
    thread::scope(|scope| {
        for rank in 0..size {
            let folder = folder.path();
            scope.spawn(move || {
                let mut program = Command::new(std::env::current_exe().unwrap());
                program.args(["--exact", &format!("cuda::tests::fake::{test}"), "--nocapture"]);
                let output = program.env(RANK, format!("{rank} {}", folder.display())).output().unwrap();
                fs::write(folder.join(format!("ended {rank}")), "").unwrap();
                let said =
                    [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
                let passed = output.status.success() && said.contains("1 passed");
                let fails = stopped.is_some_and(|(stopped, words)| stopped == rank && said.contains(words));
                assert_eq!(passed, !fails, "rank {rank}: {}\n{said}", output.status);
            });
        }
    });
    None
}

const ROWS: u32 = 40;
const DIM: usize = 4;
/// Value of the table's rows, where a cache of rank `r` has `r`.
const OF_TABLE: i8 = 100;

fn refused(call: &'static str, reason: &str) -> GpuError {
    GpuError::Call { call, reason: reason.into() }
}

/// Rows that rank `rank` of `size` keeps: every row is kept by one rank, or by the table alone.
fn list(rank: usize, size: usize) -> Vec<u32> {
    (0..ROWS).filter(|&v| v as usize % (size + 1) == rank).collect()
}

fn store<'a>(gpu: &Gpu, rank: usize, list: &'a [u32]) -> RowStore<'a, i8> {
    let store = RowStore::exported(gpu, (DIM, true), list).unwrap();
    let filled = store.filled(gpu, |vertices, values, scales| {
        values.fill(rank as i8);
        scales.iter_mut().zip(vertices).for_each(|(scale, &v)| *scale = v as f32);
        Ok::<(), GpuError>(())
    });
    filled.unwrap()
}

/// The rows that `cache` finds: of each the first value, by its scale. What it counts is compared.
fn found(gpu: &Gpu, own: &RowStore<'_, i8>, peers: &[&RowStore<'_, i8>]) -> Vec<f32> {
    let (values, scales) = ([OF_TABLE; DIM * ROWS as usize], Vec::from_iter((0..ROWS).map(|v| v as f32)));
    let (values, scales) = (gpu.upload(&values).unwrap(), gpu.upload(&scales).unwrap());
    let table = DeviceTable { values: values.slice(), scales: Some(scales.slice()), dim: DIM };
    let cache = DeviceCache::new(gpu, &table, own, peers).unwrap();
    let positions = gpu.upload(&Vec::from_iter(0..ROWS)).unwrap();
    let mut out = gpu.alloc::<f32>(DIM * ROWS as usize).unwrap();
    cache.gather(gpu, &table, positions.slice(), &mut out.slice_mut()).unwrap();
    let hits = cache.hits(gpu, positions.slice()).unwrap();
    let [hits] = gpu.read([hits.bytes()]).unwrap();
    let peer = peers.iter().map(|peer| peer.len()).sum();
    assert_eq!(DeviceHits::of(&hits), CacheHits { own: own.len(), peer });
    out.to_vec().unwrap().into_iter().step_by(DIM).collect()
}

/// All ranks keep rows, and read those of the ranks that they reach: of all, or of the other of two.
fn read_each_other(place: &Place, paired: bool) {
    let (gpu, rank, size) = (&place.gpu, place.rank, place.size);
    let lists: Vec<Vec<u32>> = (0..size).map(|rank| list(rank, size)).collect();
    let free = gpu.memory().unwrap().0;
    let own = store(gpu, rank, &lists[rank]);
    let handles: Vec<RowHandles> = place.tell(&[own.handles().unwrap()]).unwrap();
    let open = |owner: usize| RowStore::<i8>::imported(gpu, (DIM, true), &lists[owner], &handles[owner]);
    let mut peers = Vec::new();
    for owner in (0..size).filter(|&owner| owner != rank) {
        match open(owner) {
            Ok(store) => peers.push((owner, store)),
            Err(error) => {
                assert!(paired && owner / 2 != rank / 2, "rank {rank} of rank {owner}: {error}");
                assert_eq!(error, refused("cuIpcOpenMemHandle", "mapping of buffer object failed"));
            }
        }
    }
    assert_eq!(peers.len(), if paired { 1 } else { size - 1 });
    assert_eq!(open(rank).unwrap_err(), refused("cuIpcOpenMemHandle", "invalid device context"), "its own");
    let stores: Vec<_> = peers.iter().map(|(_, store)| store).collect();
    let expected = (0..ROWS).map(|v| {
        let owner = v as usize % (size + 1);
        let is_reached = owner == rank || peers.iter().any(|(peer, _)| *peer == owner);
        f32::from(if is_reached { owner as i8 } else { OF_TABLE }) * v as f32
    });
    assert_eq!(found(gpu, &own, &stores), Vec::from_iter(expected), "rank {rank}");
    // Opened again, it is open until it was closed as often.
    let again = open(peers[0].0).unwrap();
    assert_eq!(found(gpu, &own, &[&again]).len(), ROWS as usize);
    drop(again);
    assert_eq!(found(gpu, &own, &[&peers[0].1]).len(), ROWS as usize);
    let peer = peers[0].0;
    drop(peers);
    place.meet().unwrap();
    own.reclaim();
    drop(own);
    // The pool keeps some of what it had.
    assert!(gpu.memory().unwrap().0 + (2 << 20) > free, "it is given back");
    place.meet().unwrap();
    assert_eq!(open(peer).unwrap_err(), refused("cuIpcOpenMemHandle", "invalid resource handle"), "it is freed");
}

#[test]
fn rows_are_read_from_what_other_processes_keep() {
    for (size, link, haste) in [(2, "nvlink", None), (4, "pcie", None), (4, "pairs", None), (3, "nvlink", Some("3"))] {
        let mut variables = vec![("FAKE_CUDA_LINK", link)];
        variables.extend(haste.map(|haste| ("FAKE_CUDA_HASTE", haste)));
        let test = "ipc::rows_are_read_from_what_other_processes_keep";
        if let Some(place) = rank(test, size, None, &variables) {
            read_each_other(&place, std::env::var("FAKE_CUDA_LINK").unwrap() == "pairs");
        }
        if std::env::var_os(ALONE).is_some() {
            return;
        }
    }
}

/// The fake shows who frees too early.
#[test]
fn memory_that_another_process_has_open_must_not_be_freed() {
    let test = "ipc::memory_that_another_process_has_open_must_not_be_freed";
    let words = "memory is freed that another process has open";
    let Some(place) = rank(test, 2, Some((0, words)), &[]) else { return };
    let gpu = &place.gpu;
    let kept = DeviceBuffer::<u32>::exported(gpu, 4).unwrap();
    let handles = place.tell(&[kept.ipc_handle().unwrap()]).unwrap();
    let opened = (place.rank == 1).then(|| DeviceBuffer::<u32>::imported(gpu, &handles[0], 4).unwrap());
    place.meet().unwrap();
    kept.reclaim();
    drop(kept);
    assert!(place.meet().is_none(), "rank 0 has died of it");
    drop(opened);
}

/// And who does not close.
#[test]
fn memory_of_another_process_must_be_closed() {
    let test = "ipc::memory_of_another_process_must_be_closed";
    let words = "the context of device 1 was retained and not released";
    let Some(place) = rank(test, 2, Some((1, words)), &[]) else { return };
    let gpu = &place.gpu;
    let kept = DeviceBuffer::<u32>::exported(gpu, 4).unwrap();
    let handles = place.tell(&[kept.ipc_handle().unwrap()]).unwrap();
    if place.rank == 1 {
        std::mem::forget(DeviceBuffer::<u32>::imported(gpu, &handles[0], 4).unwrap());
        kept.reclaim();
    }
    place.meet().unwrap();
}

#[test]
fn what_is_not_to_be_shared_or_opened_is_refused() {
    if !alone("ipc::what_is_not_to_be_shared_or_opened_is_refused", &[]) {
        return;
    }
    let gpu = Gpu::open(0).unwrap();
    let of_pool = gpu.upload(&[1u32, 2]).unwrap();
    assert_eq!(of_pool.ipc_handle().unwrap_err(), refused("cuIpcGetMemHandle", "invalid argument"));
    assert!(matches!(DeviceBuffer::<u32>::imported(&gpu, &IpcHandle::zeroed(), 2), Err(GpuError::Input(_))));
    let shown = DeviceBuffer::<u32>::exported(&gpu, 2).unwrap();
    let own = shown.ipc_handle().unwrap();
    assert_eq!(shown.ipc_handle().unwrap(), own, "as often as one likes");
    let opened = DeviceBuffer::<u32>::imported(&gpu, &own, 2).unwrap_err();
    assert_eq!(opened, refused("cuIpcOpenMemHandle", "invalid device context"));
    let free = gpu.memory().unwrap().0;
    drop(DeviceBuffer::<u32>::exported(&gpu, 2).unwrap());
    assert_eq!(gpu.memory().unwrap().0, free, "nobody was shown this one");
}
