//! Memory that processes read from each other, each with a GPU.

use bytemuck::Zeroable;

use super::ranks::{Lost, Place, rank};
use super::{ALONE, alone};
use crate::comm::{Communicator, all_gather_v};
use crate::cuda::{DeviceBuffer, Gpu, GpuError, IpcHandle};
use crate::error::CommError;
use crate::{CacheHits, DeviceCache, DeviceHits, DeviceTable, RowHandles, RowStore};

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
    let row = [rank as i8; DIM];
    RowStore::exported(gpu, DIM, list, |_| &row, Some(&|v| v as f32)).unwrap()
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
    let (gpu, comm) = place.join().unwrap();
    let (rank, size) = (place.rank, place.size);
    let lists: Vec<Vec<u32>> = (0..size).map(|rank| list(rank, size)).collect();
    let free = gpu.memory().unwrap().0;
    let own = store(&gpu, rank, &lists[rank]);
    let handles: Vec<RowHandles> = all_gather_v(&comm, &[own.handles().unwrap()]).unwrap().concat();
    let open = |owner: usize| RowStore::<i8>::imported(&gpu, (DIM, true), &lists[owner], &handles[owner]);
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
    assert_eq!(found(&gpu, &own, &stores), Vec::from_iter(expected), "rank {rank}");
    // Opened again, it is open until it was closed as often.
    let again = open(peers[0].0).unwrap();
    assert_eq!(found(&gpu, &own, &[&again]).len(), ROWS as usize);
    drop(again);
    assert_eq!(found(&gpu, &own, &[&peers[0].1]).len(), ROWS as usize);
    let peer = peers[0].0;
    drop(peers);
    comm.barrier().unwrap();
    own.reclaim();
    drop(own);
    // The pool keeps some of what it had.
    assert!(gpu.memory().unwrap().0 + (2 << 20) > free, "it is given back");
    comm.barrier().unwrap();
    assert_eq!(open(peer).unwrap_err(), refused("cuIpcOpenMemHandle", "invalid resource handle"), "it is freed");
}

#[test]
fn rows_are_read_from_what_other_processes_keep() {
    for (size, link, haste) in [(2, "nvlink", None), (4, "pcie", None), (4, "pairs", None), (3, "nvlink", Some("3"))] {
        let mut variables = vec![("FAKE_CUDA_LINK", link)];
        variables.extend(haste.map(|haste| ("FAKE_CUDA_HASTE", haste)));
        let test = "ipc::rows_are_read_from_what_other_processes_keep";
        if let Some(place) = rank(test, size, Lost::Nobody, &variables) {
            read_each_other(&place, std::env::var("FAKE_CUDA_LINK").unwrap() == "pairs");
        }
        if std::env::var_os(ALONE).is_some() {
            return;
        }
    }
}

/// Nobody can say that the others have closed what a rank keeps, so it stays.
#[test]
fn a_process_that_dies_with_the_memory_of_others_open_ends_them_with_its_name() {
    let test = "ipc::a_process_that_dies_with_the_memory_of_others_open_ends_them_with_its_name";
    let Some(place) = rank(test, 3, Lost::Dies(2), &[]) else { return };
    let (gpu, comm) = place.join().unwrap();
    let lists: Vec<Vec<u32>> = (0..3).map(|rank| list(rank, 3)).collect();
    let own = store(&gpu, place.rank, &lists[place.rank]);
    let handles: Vec<RowHandles> = all_gather_v(&comm, &[own.handles().unwrap()]).unwrap().concat();
    let others = (0..3).filter(|&owner| owner != place.rank);
    let open = |owner: usize| RowStore::<i8>::imported(&gpu, (DIM, true), &lists[owner], &handles[owner]).unwrap();
    let peers: Vec<_> = others.map(open).collect();
    comm.barrier().unwrap();
    if place.rank == 2 {
        std::process::abort();
    }
    let died = CommError::PeerFailed { rank: 2, reason: "its process has ended".to_string() };
    assert_eq!(comm.barrier(), Err(died));
    drop(peers);
}

/// The fake shows who frees too early.
#[test]
fn memory_that_another_process_has_open_must_not_be_freed() {
    let test = "ipc::memory_that_another_process_has_open_must_not_be_freed";
    let words = "memory is freed that another process has open";
    let Some(place) = rank(test, 2, Lost::Stopped(0, words), &[]) else { return };
    let (gpu, comm) = place.join().unwrap();
    let kept = DeviceBuffer::<u32>::exported(&gpu, 4).unwrap();
    let handles = all_gather_v(&comm, &[kept.ipc_handle().unwrap()]).unwrap().concat();
    let opened = (place.rank == 1).then(|| DeviceBuffer::<u32>::imported(&gpu, &handles[0], 4).unwrap());
    comm.barrier().unwrap();
    kept.reclaim();
    drop(kept);
    assert!(comm.barrier().is_err(), "rank 0 has died of it");
    drop(opened);
}

/// And who does not close.
#[test]
fn memory_of_another_process_must_be_closed() {
    let test = "ipc::memory_of_another_process_must_be_closed";
    let words = "the context of device 1 was retained and not released";
    let Some(place) = rank(test, 2, Lost::Stopped(1, words), &[]) else { return };
    let (gpu, comm) = place.join().unwrap();
    let kept = DeviceBuffer::<u32>::exported(&gpu, 4).unwrap();
    let handles = all_gather_v(&comm, &[kept.ipc_handle().unwrap()]).unwrap().concat();
    if place.rank == 1 {
        std::mem::forget(DeviceBuffer::<u32>::imported(&gpu, &handles[0], 4).unwrap());
        kept.reclaim();
    }
    comm.barrier().unwrap();
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
