//! Invariant 3: backward is the transpose of forward; and forward brings every row to the rank that
//! needs it.

use gsplit_gpu_sim::ByHost;
use gsplit_kernels::{Communicator, DeviceOwners, Draws, Stream, StreamKey};
use tch::Kind;

use super::fixture::{Cut, on_ranks};
use crate::operator::{Place, filled_with_room, from_rows, on_host, to_rows};
use crate::{Exchange, Shuffled};

const N: usize = 200;
const DIM: usize = 3;

/// Distinct vertices that rank `rank` needs; rank 1 needs none.
fn mixed_frontier(seed: u64, rank: usize) -> Vec<u32> {
    if rank == 1 {
        return Vec::new();
    }
    let key = StreamKey { step: rank as u32, ..StreamKey::new(seed, Stream::Generate) };
    let mut draws = Draws::new(&key, 0);
    (0..N as u32).filter(|_| draws.below(3) == 0).collect()
}

fn value(seed: u64, v: u32, column: usize) -> f32 {
    Draws::new(&StreamKey::new(seed, Stream::Init), v * DIM as u32 + column as u32).unit_f32() - 0.5
}

/// The shuffle of the vertices that this rank needs, by the owners in `part`.
fn shuffled(comm: &dyn Communicator, seed: u64, part: &[u16]) -> Shuffled {
    Exchange::shuffle(comm, &mixed_frontier(seed, comm.rank()), |v| part[v as usize] as usize)
        .unwrap()
}

/// Rows that `exchange` appends to the rows `x` of the local frontier, of which `read` rows are
/// read.
fn forward(exchange: &Exchange, comm: &dyn Communicator, x: &[f32], read: usize) -> Vec<f32> {
    let mut rows = [x, &vec![f32::NAN; read * DIM - x.len()]].concat();
    exchange.forward(comm, &mut rows, DIM).unwrap();
    rows
}

/// The gradients of the local frontier's rows, from the gradients of the rows that were read.
fn backward(exchange: &Exchange, comm: &dyn Communicator, y: &[f32], frontier: usize) -> Vec<f32> {
    let mut rows = y.to_vec();
    exchange.backward(comm, &mut rows, DIM).unwrap();
    rows.truncate(frontier * DIM);
    rows
}

/// Random values of this rank for this number of `rows`.
fn random(comm: &dyn Communicator, seed: u64, rows: usize, step: u32) -> Vec<f32> {
    let key = StreamKey { step, epoch: comm.rank() as u32, ..StreamKey::new(seed, Stream::Split) };
    (0..(rows * DIM) as u32).map(|i| Draws::new(&key, i).unit_f32() - 0.5).collect()
}

#[test]
fn forward_brings_each_row_from_its_owner() {
    for (ranks, cut) in [1, 2, 3, 4, 8].into_iter().flat_map(|k| Cut::ALL.map(|cut| (k, cut))) {
        let part = cut.assignment(N, ranks);
        on_ranks(ranks, |comm| {
            let mixed_frontier = mixed_frontier(5, comm.rank());
            let Shuffled { frontier, read, source, exchange } =
                Exchange::shuffle(comm, &mixed_frontier, |v| part[v as usize] as usize).unwrap();
            let [frontier, read, source] =
                [&frontier, &read, &source].map(|ids| ids.on_host().unwrap());
            assert!(
                read.starts_with(frontier)
                    && frontier.iter().all(|&v| part[v as usize] as usize == comm.rank())
            );
            let found: Vec<u32> = source.iter().map(|&row| read[row as usize]).collect();
            assert_eq!(
                found, mixed_frontier,
                "each vertex of the mixed frontier is read where it is said to be"
            );
            let row = |v: &u32| (0..DIM).map(|column| value(5, *v, column)).collect::<Vec<_>>();
            let rows: Vec<f32> = frontier.iter().flat_map(row).collect();
            let expected: Vec<f32> = read.iter().flat_map(row).collect();
            assert_eq!(
                forward(&exchange, comm, &rows, read.len()),
                expected,
                "{ranks} ranks, {cut:?}"
            );
            let foreign = mixed_frontier
                .iter()
                .filter(|&&v| part[v as usize] as usize != comm.rank())
                .count();
            assert_eq!((exchange.rows_received(), read.len()), (foreign, frontier.len() + foreign));
        });
    }
}

#[test]
fn backward_is_the_transpose_of_forward() {
    for (seed, ranks, cut) in (0..4).flat_map(|s| {
        [1, 2, 3, 4, 8].into_iter().flat_map(move |k| Cut::ALL.map(|cut| (s, k, cut)))
    }) {
        let part = cut.assignment(N, ranks);
        let products = on_ranks(ranks, |comm| {
            let Shuffled { frontier, read, exchange, .. } = shuffled(comm, seed, &part);
            let (x, y) = (random(comm, seed, frontier.len(), 0), random(comm, seed, read.len(), 1));
            let dot = |a: &[f32], b: &[f32]| {
                a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>()
            };
            let left = dot(&forward(&exchange, comm, &x, read.len()), &y);
            let right = dot(&x, &backward(&exchange, comm, &y, frontier.len()));
            (left, right)
        });
        let (left, right) =
            products.iter().fold((0.0, 0.0), |sum, pair| (sum.0 + pair.0, sum.1 + pair.1));
        assert!(
            (left - right).abs() < 1e-5,
            "seed {seed}, {ranks} ranks, {cut:?}: {left} against {right}"
        );
    }
}

/// Rows stay in their memory if it has room for the rows of other ranks, and are copied otherwise.
#[test]
fn only_what_crosses_is_copied() {
    let part = Cut::Random.assignment(N, 3);
    on_ranks(3, |comm| {
        let Shuffled { frontier, read, exchange, .. } = shuffled(comm, 6, &part);
        let (x, rows, room) =
            (random(comm, 6, frontier.len(), 0), frontier.len(), exchange.rows_received());
        let expected = forward(&exchange, comm, &x, read.len());
        let host = Place::host();
        let move_rows = |room: usize| {
            let copied = |out: &mut [f32]| {
                out.copy_from_slice(&x);
                Ok(())
            };
            let rows = filled_with_room([rows, DIM], room, copied).unwrap();
            let address = rows.data_ptr();
            let read = exchange.forward_at(&host, comm, Some(rows.shallow_clone()), DIM).unwrap();
            assert_eq!(to_rows(&read).unwrap(), expected);
            assert_eq!(to_rows(&rows).unwrap(), x);
            // A tensor is not extended twice: other data follows it in memory.
            let again = exchange.forward_at(&host, comm, Some(rows), DIM).unwrap();
            assert_eq!([to_rows(&again).unwrap(), to_rows(&read).unwrap()], [&expected[..]; 2]);
            (read.data_ptr() == address, again.data_ptr() == address)
        };
        assert_eq!(move_rows(room), (true, room == 0));
        assert_eq!(move_rows(0), (room == 0, room == 0));
    });
}

#[test]
fn differential_rows_on_a_gpu_move_as_on_the_host() {
    for (order, (ranks, cut)) in
        (0..).zip([2, 4].into_iter().flat_map(|k| Cut::ALL.map(|cut| (k, cut))))
    {
        let part = cut.assignment(N, ranks);
        let place = Place::under_test(order % 4);
        on_ranks(ranks, |comm| {
            let mixed_frontier = mixed_frontier(7, comm.rank());
            let host =
                Exchange::shuffle(comm, &mixed_frontier, |v| part[v as usize] as usize).unwrap();
            let (rows, read) = (host.frontier.len(), host.read.len());
            let (x, y) = (random(comm, 7, rows, 0), random(comm, 7, read, 1));
            let bring = |rows: &Vec<f32>| {
                place.bring(&from_rows(rows.clone(), rows.len() / DIM, DIM).unwrap()).unwrap()
            };
            let expected =
                (forward(&host.exchange, comm, &x, read), backward(&host.exchange, comm, &y, rows));
            // The index of the host, and one that was made on the GPU.
            let gpu = place.gpu().unwrap();
            let (vertices, owners) =
                (gpu.upload(&mixed_frontier).unwrap(), gpu.upload(&part).unwrap());
            let shuffled =
                |owners| Exchange::shuffle_on_device(gpu, comm, vertices.slice(), owners).unwrap();
            let on_gpu = shuffled(DeviceOwners::Map(owners.slice()));
            assert_same_index(&on_gpu, &host, &format!("{ranks} ranks, {cut:?}"));
            for exchange in [&host.exchange, &on_gpu.exchange] {
                let forward = exchange.forward_at(&place, comm, Some(bring(&x)), DIM).unwrap();
                let backward = exchange.backward_at(&place, comm, bring(&y), DIM).unwrap();
                let [forward, backward] =
                    [forward, backward].map(|rows| to_rows(&on_host(&rows).unwrap()).unwrap());
                assert_eq!((forward, backward), expected, "{ranks} ranks, {cut:?}");
            }
            let by_host = (
                forward(&on_gpu.exchange, comm, &x, read),
                backward(&on_gpu.exchange, comm, &y, rows),
            );
            assert_eq!(by_host, expected, "{ranks} ranks, {cut:?}");
            let in_turn = Exchange::shuffle(comm, &mixed_frontier, |v| v as usize % ranks).unwrap();
            assert_same_index(&shuffled(DeviceOwners::InTurn), &in_turn, "in turn");
        });
    }
}

fn assert_same_index(a: &Shuffled, b: &Shuffled, what: &str) {
    let ids =
        |s: &Shuffled| [&s.frontier, &s.read, &s.source].map(|ids| ids.on_host().unwrap().to_vec());
    assert_eq!(ids(a), ids(b), "{what}");
    assert_eq!(a.exchange.rows_received(), b.exchange.rows_received(), "{what}");
}

/// Rows of bf16 and f16 move as they are, in half the bytes; sums of their gradients equal the f32
/// sums, rounded once.
#[test]
fn differential_rounded_rows_move_as_those_of_f32() {
    for (ranks, kind) in
        [2, 3].into_iter().flat_map(|ranks| [Kind::BFloat16, Kind::Half].map(|kind| (ranks, kind)))
    {
        let part = Cut::Random.assignment(N, ranks);
        let place = Place::under_test(ranks as u32);
        on_ranks(ranks, |comm| {
            let Shuffled { frontier, read, exchange, .. } = shuffled(comm, 9, &part);
            let random = |rows: usize, step| {
                let values = random(comm, 9, rows, step);
                place.bring(&from_rows(values, rows, DIM).unwrap().to_kind(kind)).unwrap()
            };
            let (x, y) = (random(frontier.len(), 0), random(read.len(), 1));
            let by_host = ByHost::new(comm);
            let sent = || comm.sent().iter().map(|sent| sent.bytes).sum::<u64>();
            let run = |comm: &dyn Communicator, kind: Kind| {
                let [x, y] = [&x, &y].map(|rows| rows.totype(kind).copy());
                let forward = exchange.forward_at(&place, comm, Some(x), DIM).unwrap();
                (forward, exchange.backward_at(&place, comm, y, DIM).unwrap())
            };
            let before = sent();
            let expected = run(&by_host, Kind::Float);
            let wide_bytes = sent() - before;
            for comm in [comm, &by_host] {
                let before = sent();
                let (forward, backward) = run(comm, kind);
                assert_eq!(2 * (sent() - before), wide_bytes);
                assert_eq!((forward.kind(), backward.kind()), (kind, kind));
                assert_eq!(forward, expected.0.to_kind(kind), "{ranks} ranks, {kind:?}");
                assert_eq!(backward, expected.1.to_kind(kind), "{ranks} ranks, {kind:?}");
            }
            assert!(wide_bytes > 0, "nothing was sent");
        });
    }
}
