//! Invariant 3: backward is the transpose of forward; and forward brings every row to where it is needed.

use gsplit_kernels::{ByHost, Communicator, DeviceOwners, Draws, Stream, StreamKey};
use tch::Kind;

use super::fixture::{Cut, on_ranks};
use crate::Exchange;
use crate::place::{Place, on_host};
use crate::step::{from_rows, to_rows};

const N: usize = 200;
const DIM: usize = 3;

/// Distinct vertices that rank `rank` needs; rank 1 needs none.
fn mixed(seed: u64, rank: usize) -> Vec<u32> {
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

#[test]
fn forward_brings_each_row_from_its_owner() {
    for (ranks, cut) in [1, 2, 3, 4, 8].into_iter().flat_map(|k| Cut::ALL.map(|cut| (k, cut))) {
        let part = cut.assignment(N, ranks);
        on_ranks(ranks, |comm| {
            let mixed = mixed(5, comm.rank());
            let (frontier, exchange) = Exchange::shuffle(comm, &mixed, |v| part[v as usize] as usize).unwrap();
            let row = |v: &u32| (0..DIM).map(|column| value(5, *v, column)).collect::<Vec<_>>();
            let rows: Vec<f32> = frontier.iter().flat_map(row).collect();
            let expected: Vec<f32> = mixed.iter().flat_map(row).collect();
            assert_eq!(exchange.forward(comm, rows, DIM).unwrap(), expected, "{ranks} ranks, {cut:?}");
            let foreign = mixed.iter().filter(|&&v| part[v as usize] as usize != comm.rank()).count();
            assert_eq!(exchange.rows_received(), foreign);
        });
    }
}

#[test]
fn backward_is_the_transpose_of_forward() {
    for (seed, ranks, cut) in
        (0..4).flat_map(|s| [1, 2, 3, 4, 8].into_iter().flat_map(move |k| Cut::ALL.map(|cut| (s, k, cut))))
    {
        let part = cut.assignment(N, ranks);
        let products = on_ranks(ranks, |comm| {
            let mixed = mixed(seed, comm.rank());
            let (frontier, exchange) = Exchange::shuffle(comm, &mixed, |v| part[v as usize] as usize).unwrap();
            let random = |rows: usize, step| -> Vec<f32> {
                let key = StreamKey { step, epoch: comm.rank() as u32, ..StreamKey::new(seed, Stream::Split) };
                (0..(rows * DIM) as u32).map(|i| Draws::new(&key, i).unit_f32() - 0.5).collect()
            };
            let (x, y) = (random(frontier.len(), 0), random(mixed.len(), 1));
            let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
            let left = dot(&exchange.forward(comm, x.clone(), DIM).unwrap(), &y);
            let right = dot(&x, &exchange.backward(comm, y, DIM).unwrap());
            (left, right)
        });
        let (left, right) = products.iter().fold((0.0, 0.0), |sum, pair| (sum.0 + pair.0, sum.1 + pair.1));
        assert!((left - right).abs() < 1e-5, "seed {seed}, {ranks} ranks, {cut:?}: {left} against {right}");
    }
}

#[test]
fn differential_rows_on_a_gpu_move_as_on_the_host() {
    for (order, (ranks, cut)) in (0..).zip([2, 4].into_iter().flat_map(|k| Cut::ALL.map(|cut| (k, cut)))) {
        let part = cut.assignment(N, ranks);
        let place = Place::under_test(order % 4);
        on_ranks(ranks, |comm| {
            let mixed = mixed(7, comm.rank());
            let (frontier, exchange) = Exchange::shuffle(comm, &mixed, |v| part[v as usize] as usize).unwrap();
            let random = |rows: usize, step| -> Vec<f32> {
                let key = StreamKey { step, epoch: comm.rank() as u32, ..StreamKey::new(7, Stream::Split) };
                (0..(rows * DIM) as u32).map(|i| Draws::new(&key, i).unit_f32() - 0.5).collect()
            };
            let (x, y) = (random(frontier.len(), 0), random(mixed.len(), 1));
            let bring =
                |rows: &Vec<f32>| place.bring(&from_rows(rows.clone(), rows.len() / DIM, DIM).unwrap()).unwrap();
            let [x_there, y_there] = [&x, &y].map(bring);
            let expected = exchange.forward(comm, x.clone(), DIM).unwrap();
            let expected = (expected, exchange.backward(comm, y.clone(), DIM).unwrap());
            // The index of the host, and one that was made on the GPU.
            let gpu = place.gpu().unwrap();
            let (vertices, owners) = (gpu.upload(&mixed).unwrap(), gpu.upload(&part).unwrap());
            let shuffled = |owners| Exchange::shuffle_on_device(gpu, comm, vertices.slice(), owners).unwrap();
            let (found, there) = shuffled(DeviceOwners::Map(owners.slice()));
            assert_eq!(found.to_vec().unwrap(), frontier, "{ranks} ranks, {cut:?}");
            assert_eq!(there.rows_received(), exchange.rows_received());
            for exchange in [&exchange, &there] {
                let forward = exchange.forward_at(&place, comm, Some(&x_there), DIM).unwrap();
                let backward = exchange.backward_at(&place, comm, &y_there, DIM).unwrap();
                let [forward, backward] = [forward, backward].map(|rows| to_rows(&on_host(&rows).unwrap()).unwrap());
                assert_eq!((forward, backward), expected, "{ranks} ranks, {cut:?}");
            }
            let on_host = (there.forward(comm, x, DIM).unwrap(), there.backward(comm, y, DIM).unwrap());
            assert_eq!(on_host, expected, "{ranks} ranks, {cut:?}");
            let (in_turn, _) = Exchange::shuffle(comm, &mixed, |v| v as usize % ranks).unwrap();
            assert_eq!(shuffled(DeviceOwners::InTurn).0.to_vec().unwrap(), in_turn);
        });
    }
}

/// Rows of bf16 and f16 move as they are, in half the bytes; sums of their gradients are those in f32, rounded once.
#[test]
fn differential_rounded_rows_move_as_those_of_f32() {
    for (ranks, kind) in [2, 3].into_iter().flat_map(|ranks| [Kind::BFloat16, Kind::Half].map(|kind| (ranks, kind))) {
        let part = Cut::Random.assignment(N, ranks);
        let place = Place::under_test(ranks as u32);
        on_ranks(ranks, |comm| {
            let mixed = mixed(9, comm.rank());
            let (frontier, exchange) = Exchange::shuffle(comm, &mixed, |v| part[v as usize] as usize).unwrap();
            let random = |rows: usize, step| {
                let key = StreamKey { step, epoch: comm.rank() as u32, ..StreamKey::new(9, Stream::Split) };
                let values: Vec<f32> = (0..(rows * DIM) as u32).map(|i| Draws::new(&key, i).unit_f32() - 0.5).collect();
                place.bring(&from_rows(values, rows, DIM).unwrap().to_kind(kind)).unwrap()
            };
            let (x, y) = (random(frontier.len(), 0), random(mixed.len(), 1));
            let by_host = ByHost::new(comm);
            let run = |comm: &dyn Communicator, kind: Kind| {
                let forward = exchange.forward_at(&place, comm, Some(&x.to_kind(kind)), DIM).unwrap();
                (forward, exchange.backward_at(&place, comm, &y.to_kind(kind), DIM).unwrap())
            };
            let expected = run(&by_host, Kind::Float);
            let wide_bytes = by_host.take_sent();
            for comm in [comm, &by_host] {
                let (forward, backward) = run(comm, kind);
                assert_eq!((forward.kind(), backward.kind()), (kind, kind));
                assert_eq!(forward, expected.0.to_kind(kind), "{ranks} ranks, {kind:?}");
                assert_eq!(backward, expected.1.to_kind(kind), "{ranks} ranks, {kind:?}");
            }
            assert_eq!(2 * by_host.take_sent(), wide_bytes);
            assert!(wide_bytes > 0, "nothing was sent");
        });
    }
}
