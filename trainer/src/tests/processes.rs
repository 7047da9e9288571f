//! Ranks that are processes (here threads that share nothing but a communicator), and ranks that
//! hang.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use gsplit_kernels::{CommError, Communicator, Threads};
use gsplit_store::Notes;
use tch::Tensor;

use super::fixture::{
    Cut, Fixture, assert_refused, changed, config, dataset, emulated, store_partition,
};
use super::groups::grouped;
use super::runs::{losses, run};
use crate::config::{Config, Device, ModelKind, NormKind, Parallelism};
use crate::model::{Layer, LayerEdges, OwnLayer};
use crate::operator::{Finish, Reduce, Rows, aggregate, linear};
use crate::ranks::comms::Comms;
use crate::tests::fixture::{Around, train};
use crate::{Error, Process, Summary};

/// Results of `work` in each of several processes, in equal groups, which receive their ends of the
/// communicators.
pub fn in_processes<R: Send>(
    (ranks, groups): (usize, usize),
    work: impl Fn(usize, Arc<Process>) -> R + Sync,
) -> Vec<R> {
    let of_groups = || Threads::groups_within(groups, ranks / groups, None).into_iter();
    let ends = Threads::group(ranks).into_iter().zip(of_groups().zip(of_groups())).enumerate();
    let work = &work;
    thread::scope(|scope| {
        let start =
            |(rank, (all, (sampling, computing))): (usize, (Threads, (Threads, Threads)))| {
                let boxed = |comm| Box::new(comm) as Box<dyn Communicator>;
                let process = match groups {
                    1 => {
                        Process::over(Comms::new(boxed(computing), boxed(sampling), None), Some(0))
                    }
                    _ => Process::over(
                        Comms::new(boxed(all), boxed(sampling), Some(boxed(computing))),
                        Some(0),
                    ),
                };
                scope.spawn(move || work(rank, Arc::new(process)))
            };
        let processes: Vec<_> = ends.map(start).collect();
        processes.into_iter().map(|process| process.join().unwrap()).collect()
    })
}

/// Results of the processes of a run on `config`, each with its `options`.
pub fn outcomes(
    fixture: &Fixture,
    config: &Config,
    options: impl Fn(usize) -> Around + Sync,
) -> Vec<crate::Result<Summary>> {
    in_processes((config.num_ranks(), config.system.groups), |rank, process| {
        run(fixture, config, &Around { process: Some(process), ..options(rank) })
    })
}

/// Like [`outcomes`], for processes with the same options that all succeed.
pub fn on_processes(fixture: &Fixture, config: &Config, options: &Around) -> Vec<Summary> {
    outcomes(fixture, config, |_| options.clone()).into_iter().map(crate::Result::unwrap).collect()
}

#[test]
fn ranks_that_are_processes_train_as_threads_do_on_hosts_and_gpus() {
    let fixture = dataset(71, 200, 5);
    store_partition(&fixture.dataset, Cut::Random, 3);
    let [data, split] = [Parallelism::Data, Parallelism::Split].map(|parallelism| {
        changed(&config(ModelKind::Gcn, parallelism, 3), |config| {
            config.model.norm = Some(NormKind::Batch)
        })
    });
    let groups = grouped(&fixture.dataset, &split, 2, 3);
    for (order, config, prefetch) in [
        (None, &split, 1),
        (Some(1), &split, 0),
        (Some(2), &data, 2),
        (None, &groups, 1),
        (Some(3), &groups, 1),
    ] {
        let options = |threads| {
            let threads = Some(threads);
            Around { places: order.and_then(emulated), prefetch, threads, ..Around::default() }
        };
        let threads = run(&fixture, config, &options(config.num_ranks())).unwrap();
        for summary in on_processes(&fixture, config, &options(1)) {
            assert_eq!(losses(&summary), losses(&threads), "{order:?}, {config:?}");
        }
    }
}

#[test]
fn processes_that_find_different_checkpoints_are_told() {
    let fixture = dataset(76, 120, 4);
    let config =
        changed(&config(ModelKind::Sage, Parallelism::Data, 2), |config| config.run.epochs = 1);
    let folder = |name: &str| Some(fixture.folder.path().join(name));
    let options = Around { resume: true, checkpoint: folder("of rank 0"), ..Around::default() };
    let notes = Notes::default();
    let first = Around { threads: Some(2), ..options.clone() };
    let summary = train(&fixture.dataset, &config, &first, &notes, &|_| {}).unwrap();
    assert_eq!((summary.resumed_after, summary.epochs.len()), (0, 1));
    let lines = notes.lines().join("\n");
    assert!(lines.contains("of rank 0 yet: starts from the beginning"), "{lines}");

    let config = changed(&config, |config| config.run.epochs = 2);
    let options = Around { threads: Some(1), ..options };
    let outcomes = outcomes(&fixture, &config, |rank| Around {
        checkpoint: folder(["of rank 0", "of rank 1"][rank]),
        ..options.clone()
    });
    for outcome in outcomes {
        assert_refused(
            outcome,
            "--resume: rank 1 finds no checkpoint, rank 0 the checkpoint of epoch 1",
        );
    }
}

#[test]
fn a_process_without_a_gpu_of_its_own_is_told() {
    let fixture = dataset(72, 60, 3);
    let cuda = changed(&config(ModelKind::Sage, Parallelism::Data, 1), |config| {
        config.system.device = Device::Cuda
    });
    let solo = || Box::new(gsplit_kernels::Solo) as Box<dyn Communicator>;
    let process = Some(Arc::new(Process::over(Comms::new(solo(), solo(), None), None)));
    let options = Around { process, ..Around::default() };
    assert_refused(run(&fixture, &cuda, &options), "LOCAL_RANK");
}

/// The mean of the neighbours and one product, after a call of a function.
struct Before {
    happens: fn() -> crate::Result<()>,
    weight: Tensor,
    out: usize,
}

impl Layer for Before {
    fn forward(
        &self,
        edges: &LayerEdges<'_>,
        input: Rows<'_>,
        finish: Finish,
    ) -> crate::Result<Tensor> {
        (self.happens)()?;
        let mean = aggregate(&edges.edges, Reduce::Mean, input, None, false)?;
        linear(edges.place(), &mean, &self.weight, None, finish)
    }

    fn out_dim(&self) -> usize {
        self.out
    }
}

pub fn before(happens: fn() -> crate::Result<()>) -> OwnLayer {
    OwnLayer::new(move |named, shape| {
        Box::new(Before {
            happens,
            weight: named.glorot("weight", [shape.input, shape.out]),
            out: shape.out,
        })
    })
}

static HANGS: AtomicBool = AtomicBool::new(true);
static TOLD: Mutex<Option<String>> = Mutex::new(None);

/// The first rank that calls this hangs.
fn hang() -> crate::Result<()> {
    if HANGS.swap(false, Ordering::SeqCst) {
        forever();
    }
    Ok(())
}

fn forever() -> ! {
    loop {
        thread::park();
    }
}

/// Called instead of ending the program.
fn abandon(error: &Error) -> ! {
    *TOLD.lock().unwrap() = Some(error.to_string());
    forever()
}

#[test]
fn a_rank_that_hangs_ends_the_program_with_its_name() {
    let started = Instant::now();
    // It never returns: the rank that hangs keeps its thread.
    thread::spawn(move || {
        let fixture = dataset(73, 120, 4);
        let config = changed(&config(ModelKind::Sage, Parallelism::Data, 3), |config| {
            config.run.eval_every = 0
        });
        let timeout = Some(Duration::from_millis(1500));
        let options = Around {
            layer: Some(before(hang)),
            timeout,
            abandon: Some(abandon),
            ..Around::default()
        };
        let _ = run(&fixture, &config, &options);
    });
    let told = loop {
        if let Some(told) = TOLD.lock().unwrap().take() {
            break told;
        }
        assert!(started.elapsed() < Duration::from_secs(60), "nobody noticed");
        thread::sleep(Duration::from_millis(10));
    };
    assert!(
        told.contains("waited 1.5 s in ")
            && told.contains(" for rank ")
            && told.contains("--timeout"),
        "{told}"
    );
}

#[test]
fn work_of_the_first_rank_alone_does_not_count() {
    // The end of every epoch takes longer than ranks may wait.
    let fixture = dataset(74, 120, 4);
    let config =
        changed(&config(ModelKind::Sage, Parallelism::Data, 2), |config| config.run.epochs = 2);
    let options = Around { timeout: Some(Duration::from_millis(1500)), ..Around::default() };
    let slow = |_: &[crate::EpochReport]| thread::sleep(Duration::from_millis(2500));
    let summary =
        train(&fixture.dataset, &config, &options, &gsplit_store::NoProgress, &slow).unwrap();
    assert_eq!(summary.epochs.len(), 2);
}

/// The first rank that calls this loses its GPU; `left` is true if none has yet.
pub fn lose_first(left: &AtomicBool) -> crate::Result<()> {
    match left.swap(false, Ordering::SeqCst) {
        true => Err(CommError::Gpu { rank: 9, reason: "the GPU is lost".into() }.into()),
        false => Ok(()),
    }
}

#[test]
fn an_error_of_a_rank_stops_all_others_with_its_reason() {
    static LEFT: AtomicBool = AtomicBool::new(true);
    let fixture = dataset(75, 120, 4);
    let data =
        changed(&config(ModelKind::Sage, Parallelism::Data, 3), |config| config.run.eval_every = 0);
    for (config, prefetch) in [(grouped(&fixture.dataset, &data, 3, 2), 1), (data, 0)] {
        LEFT.store(true, Ordering::SeqCst);
        let options = Around {
            layer: Some(before(|| lose_first(&LEFT))),
            timeout: Some(Duration::from_secs(60)),
            prefetch,
            ..Around::default()
        };
        let started = Instant::now();
        let error = run(&fixture, &config, &options).unwrap_err();
        assert!(matches!(error, Error::Comm(CommError::Gpu { rank: 9, .. })), "{error}");
        assert!(started.elapsed() < Duration::from_secs(30));
    }
}
