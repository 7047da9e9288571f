//! The suite for every implementation, also used by the trainer.

use gsplit_kernels::{
    Communicator, Draws, Stream, StreamKey, all_gather_v, all_to_all_counts, all_to_all_v,
};

/// The values that `from` sends to `to` in `round`: between 0 and 39, often none. Every rank can
/// compute them.
pub(crate) fn message(round: u32, from: usize, to: usize) -> Vec<u32> {
    let key = StreamKey { step: round, ..StreamKey::new(6, Stream::Generate) };
    let mut draws = Draws::new(&key, (from * 100 + to) as u32);
    let len = draws.below(60).saturating_sub(20);
    (0..len).map(|_| draws.next_u32()).collect()
}

/// Values of one rank whose sum depends on the order of addition.
pub(crate) fn addends(round: u32, rank: usize, len: usize) -> Vec<f32> {
    let key = StreamKey { step: round, ..StreamKey::new(7, Stream::Generate) };
    let mut draws = Draws::new(&key, rank as u32);
    (0..len).map(|_| (draws.unit_f32() - 0.5) * 10f32.powi(draws.below(8) as i32)).collect()
}

/// Checks every collective against its definition.
pub(crate) fn conformance(comm: &dyn Communicator, rounds: u32) {
    let (rank, size) = (comm.rank(), comm.size());
    for round in 0..rounds {
        let outgoing: Vec<Vec<u32>> = (0..size).map(|to| message(round, rank, to)).collect();
        let incoming: Vec<Vec<u32>> = (0..size).map(|from| message(round, from, rank)).collect();
        let send_counts: Vec<usize> = outgoing.iter().map(Vec::len).collect();
        let recv_counts = all_to_all_counts(comm, &send_counts).unwrap();
        assert_eq!(recv_counts, incoming.iter().map(Vec::len).collect::<Vec<_>>());
        let received = all_to_all_v(comm, &outgoing.concat(), &send_counts, &recv_counts).unwrap();
        assert_eq!(received, incoming.concat(), "round {round}");

        let gathered = all_gather_v(comm, &message(round, rank, 0)).unwrap();
        assert_eq!(gathered, (0..size).map(|from| message(round, from, 0)).collect::<Vec<_>>());

        let len = [0, 1, 3, 1000][round as usize % 4];
        let mut sums = addends(round, rank, len);
        comm.all_reduce_sum_f32(&mut sums).unwrap();
        let expected = (1..size).fold(addends(round, 0, len), |mut sums, rank| {
            sums.iter_mut().zip(addends(round, rank, len)).for_each(|(sum, value)| *sum += value);
            sums
        });
        assert!(
            sums.iter().map(|s| s.to_bits()).eq(expected.iter().map(|s| s.to_bits())),
            "round {round}"
        );

        let mut zero = [-0.0f32];
        comm.all_reduce_sum_f32(&mut zero).unwrap();
        assert!(zero[0].is_sign_negative(), "the sum of minus zeros");

        let mut doubles: Vec<f64> = addends(round, rank, len).into_iter().map(f64::from).collect();
        comm.all_reduce_sum_f64(&mut doubles).unwrap();
        let mut expected = vec![0.0; len];
        for rank in 0..size {
            expected
                .iter_mut()
                .zip(addends(round, rank, len))
                .for_each(|(sum, value)| *sum += f64::from(value));
        }
        assert_eq!(doubles, expected, "round {round}");

        let mut integers = [rank as u64, u64::MAX, 1];
        comm.all_reduce_sum_u64(&mut integers).unwrap();
        let n = size as u64;
        assert_eq!(integers, [n * (n - 1) / 2, 0u64.wrapping_sub(n), n]);
        comm.barrier().unwrap();
    }
}
