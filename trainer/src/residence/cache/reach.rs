//! Reach of GPUs: which GPU can read the memory of which.
//!
//! Returns: the sight of each rank of each other; the same on every rank. Idea: if ranks are
//! threads the driver is asked. If they are processes it is tried: each exports a few bytes (CUDA
//! IPC), opens those of the others on its host and compares them, and all exchange their results.
//! Why not ask the driver there, too: it does not know GPUs that `CUDA_VISIBLE_DEVICES` hides from
//! the process, whose memory can still be opened; and it does not report that two containers, or
//! two instances of one GPU, cannot open each other's. Cost: two messages to all, and a copy of a
//! few bytes from each.

use gsplit_kernels::{Communicator, DeviceBuffer, Gpu, GpuError, IpcHandle, all_gather_v};
use serde::{Deserialize, Serialize};

use crate::ranks::hosts;
use crate::{Error, Result};

/// Whether a rank can read the memory of another rank's GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Sight {
    /// It can.
    Reached,
    /// It cannot, for this reason, if known.
    Apart(String),
    /// The GPU is in another machine.
    OtherHost,
}

/// Sights of `ranks` ranks that are threads, from `reaches(reader, owner)`.
pub fn of_threads(ranks: usize, reaches: impl Fn(usize, usize) -> Result<bool>) -> Vec<Vec<Sight>> {
    let sight = |reader: usize, owner: usize| match reaches(reader, owner) {
        Ok(true) => Sight::Reached,
        Ok(false) => Sight::Apart(String::new()),
        Err(error) => Sight::Apart(error.to_string()),
    };
    (0..ranks).map(|reader| (0..ranks).map(|owner| sight(reader, owner)).collect()).collect()
}

/// A rank's host, by a unique name, and the handle with which other ranks there open its bytes, or
/// why they cannot.
#[derive(Serialize, Deserialize)]
struct Shown {
    host: Vec<u8>,
    handle: Result<Vec<u8>, String>,
}

/// Sights that the ranks of `comm`, which are processes, would have with a GPU each: all GPUs of
/// their host. Collective.
pub fn of_hosts(comm: &dyn Communicator) -> Result<Vec<Vec<Sight>>> {
    Ok(by_host(&all_gather_v(comm, &hosts::this())?))
}

fn by_host(hosts: &[Vec<u8>]) -> Vec<Vec<Sight>> {
    let sight = |own: &Vec<u8>, other: &Vec<u8>| {
        if own == other { Sight::Reached } else { Sight::OtherHost }
    };
    hosts.iter().map(|own| hosts.iter().map(|other| sight(own, other)).collect()).collect()
}

/// Sights of the ranks of `comm`, which are processes; `gpu` is this rank's GPU. Collective.
///
/// # Errors
/// Errors of the communicator. An error of a GPU is a reason for [`Sight::Apart`].
pub fn of_processes(comm: &dyn Communicator, gpu: &Gpu) -> Result<Vec<Vec<Sight>>> {
    let probe = Probe::new(gpu);
    let handle = probe
        .as_ref()
        .map(|probe| bytemuck::bytes_of(&probe.handle).to_vec())
        .map_err(ToString::to_string);
    let all = all_gather_json(comm, &Shown { host: hosts::this(), handle })?;
    let here = &all[comm.rank()].host;
    let sight = |(owner, shown): (usize, &Shown)| match &shown.handle {
        _ if owner == comm.rank() => Sight::Reached,
        _ if shown.host != *here || here.is_empty() => Sight::OtherHost,
        Ok(handle) => seen(gpu, handle),
        Err(why) => Sight::Apart(why.clone()),
    };
    let sights: Vec<Sight> = all.iter().enumerate().map(sight).collect();
    // A rank that has sent its results has closed the memory that it opened.
    let sights = all_gather_json(comm, &sights)?;
    probe.iter().for_each(|probe| probe.bytes.reclaim());
    Ok(sights)
}

/// Tests whether `gpu` can read the bytes that `handle` refers to.
fn seen(gpu: &Gpu, handle: &[u8]) -> Sight {
    let Ok(handle) = bytemuck::try_pod_read_unaligned::<IpcHandle>(handle) else {
        return Sight::Apart(String::new());
    };
    let bytes =
        DeviceBuffer::<IpcHandle>::imported(gpu, &handle, 1).and_then(|opened| opened.to_vec());
    match bytes {
        Ok(bytes) if bytes == [handle] => Sight::Reached,
        Ok(_) => Sight::Apart("a copy of its memory differs from the original".into()),
        Err(error) => Sight::Apart(error.to_string()),
    }
}

/// Bytes that other processes can open; they contain their own handle.
struct Probe {
    bytes: DeviceBuffer<IpcHandle>,
    handle: IpcHandle,
}

impl Probe {
    fn new(gpu: &Gpu) -> Result<Self, GpuError> {
        let mut bytes = DeviceBuffer::exported(gpu, 1)?;
        let handle = bytes.ipc_handle()?;
        bytes.slice_mut().upload(gpu, &[handle])?;
        gpu.synchronise()?;
        Ok(Self { bytes, handle })
    }
}

/// Gathers a message from each rank; lengths may differ. Collective.
pub fn all_gather_json<T: Serialize + for<'de> Deserialize<'de>>(
    comm: &dyn Communicator,
    said: &T,
) -> Result<Vec<T>> {
    let unlike = |_| {
        Error::Option(
            "the ranks run different versions of gsplit: start the same version on all".into(),
        )
    };
    let all = all_gather_v(comm, &serde_json::to_vec(said).map_err(unlike)?)?;
    all.iter().map(|said| serde_json::from_slice(said).map_err(unlike)).collect()
}

#[cfg(test)]
mod tests {
    use std::thread;

    use gsplit_gpu_sim::{counts, emulated};
    use gsplit_kernels::Threads;

    use super::*;

    #[test]
    fn who_reads_whose_is_tried_and_all_ranks_are_told() {
        // In emulation a GPU can open another GPU's memory, but not its own.
        let [shared, other] = [0, 1].map(emulated);
        let gpus = [&shared, &other, &shared];
        let found: Vec<_> = thread::scope(|scope| {
            let ranks = Threads::group(3).into_iter().zip(gpus);
            let ranks: Vec<_> =
                ranks.map(|(comm, gpu)| scope.spawn(move || of_processes(&comm, gpu))).collect();
            ranks.into_iter().map(|rank| rank.join().unwrap().unwrap()).collect()
        });
        assert!(found.iter().all(|sights| *sights == found[0]), "{found:?}");
        for (reader, sights) in found[0].iter().enumerate() {
            for (owner, sight) in sights.iter().enumerate() {
                match sight {
                    Sight::Apart(why) => {
                        assert!(reader + owner == 2 && why.contains("its own"), "{why}")
                    }
                    sight => assert!(
                        *sight == Sight::Reached && (reader == owner || reader + owner != 2)
                    ),
                }
            }
        }
        assert!(
            [&shared, &other].map(counts).iter().all(|counts| counts.taken == counts.freed),
            "no probe stays"
        );
    }

    #[test]
    fn ranks_on_the_host_count_with_caches_of_their_host() {
        let sights = by_host(&[b"a", b"a", b"b"].map(|name| name.to_vec()));
        for (reader, sights) in sights.iter().enumerate() {
            let expected = (0..3).map(|owner| {
                if (reader == 2) == (owner == 2) { Sight::Reached } else { Sight::OtherHost }
            });
            assert!(expected.eq(sights.iter().cloned()), "{reader}: {sights:?}");
        }
        let one = thread::scope(|scope| {
            let ranks =
                Threads::group(2).into_iter().map(|comm| scope.spawn(move || of_hosts(&comm)));
            ranks
                .collect::<Vec<_>>()
                .into_iter()
                .map(|rank| rank.join().unwrap().unwrap())
                .collect::<Vec<_>>()
        });
        assert!(one.iter().all(|sights| sights.concat() == vec![Sight::Reached; 4]));
    }

    #[test]
    fn what_is_no_handle_is_not_opened() {
        let gpu = emulated(0);
        assert_eq!(seen(&gpu, b"short"), Sight::Apart(String::new()));
        let Sight::Apart(why) = seen(&gpu, &[0; size_of::<IpcHandle>()]) else {
            panic!("nobody made it")
        };
        assert!(!why.is_empty());
    }
}
