//! The shuffle of one layer: which rows go to which rank, forwards and backwards.
//!
//! Below each layer, a rank holds one row for every vertex of its local frontier (which it owns) and needs one for every
//! vertex of its mixed frontier (owned by anybody). [`Exchange::forward`] brings them; [`Exchange::backward`] is the exact
//! transpose: gradients of mixed rows go back to the owners and are summed there. ⟨forward(x), y⟩ = ⟨x, backward(y)⟩.
//!
//! It is built once, while sampling, and serves features, activations and gradients (GSplit, section 5). Sums are
//! taken own rows first, then by rank, so they do not depend on timing. A rank's own rows never pass the communicator.

mod device;

use std::sync::OnceLock;

use gsplit_kernels::{
    Communicator, Gpu, all_to_all_counts, all_to_all_v, gather_f32, gather_rows, scatter_add_f32, split_by_owner,
    unique,
};

use crate::Result;
use device::OnDevice;

/// How the rows of a local frontier become the rows of the mixed frontier above it.
#[derive(Debug)]
pub enum Exchange {
    /// Both frontiers are the same and on this rank: nothing moves.
    Identity,
    /// Rows move between ranks.
    Shuffle(Box<Shuffle>),
}

/// A [`Exchange::Shuffle`].
#[derive(Debug)]
pub struct Shuffle {
    /// Rows of the local frontier.
    rows_in: usize,
    /// Rows of the mixed frontier.
    rows_out: usize,
    /// Rows that each rank asked for; none for this one.
    send: Counts,
    /// Rows that each rank owns of those needed here; none for this one.
    receive: Counts,
    /// Which these are. It is made on the host or on a GPU, and then on the other when it is first asked for there.
    on_host: OnceLock<Index>,
    on_device: OnDevice,
}

/// A number of rows for each rank.
#[derive(Debug)]
struct Counts(Vec<usize>);

impl Counts {
    /// `counts`, but none for rank `me`.
    fn without(mut counts: Vec<usize>, me: usize) -> Self {
        counts[me] = 0;
        Self(counts)
    }

    fn elements(&self, dim: usize) -> Vec<usize> {
        self.0.iter().map(|count| count * dim).collect()
    }
}

/// The rows of a shuffle.
#[derive(Debug, PartialEq, Eq)]
struct Index {
    /// Positions in the local frontier of the rows that other ranks asked for, by asking rank.
    send: Vec<u32>,
    /// Positions in the mixed frontier of the rows that others own, by owner.
    receive: Vec<u32>,
    /// (position in the mixed frontier, position in the local frontier) of the rows that this rank owns.
    own: (Vec<u32>, Vec<u32>),
    /// For each mixed row: its position in the local frontier followed by the received rows.
    source: Vec<u32>,
}

impl Shuffle {
    fn index(&self) -> Result<&Index> {
        if let Some(index) = self.on_host.get() {
            return Ok(index);
        }
        let index = self.on_device.to_host(self.rows_in)?;
        Ok(self.on_host.get_or_init(|| index))
    }
}

impl Exchange {
    /// Splits the vertices of `mixed` by `owner`, tells each owner which of its vertices are needed here, and returns the
    /// next local frontier with the exchange between the two. The local frontier starts with this rank's own
    /// vertices of `mixed` in their order, then come those that only others need.
    ///
    /// Collective: every rank calls it, with an empty `mixed` if it has nothing to compute.
    pub fn shuffle(
        comm: &dyn Communicator,
        mixed: &[u32],
        owner: impl Fn(u32) -> usize + Sync,
    ) -> Result<(Vec<u32>, Exchange)> {
        let me = comm.rank();
        let split = split_by_owner(mixed, comm.size(), owner)?;
        let needed: Vec<u32> = split.order.iter().map(|&position| mixed[position as usize]).collect();
        let asked_counts = all_to_all_counts(comm, &split.counts)?;
        let asked: Vec<u32> = all_to_all_v(comm, &needed, &split.counts, &asked_counts)?;

        let asked_by = groups(&asked, &asked_counts);
        let mut lists = vec![asked_by[me]];
        lists.extend(without(&asked_by, me));
        let (local_frontier, positions) = unique(&lists);
        let (own_local, send_positions) = positions.split_at(asked_by[me].len());

        let mixed_by_owner = groups(&split.order, &split.counts);
        let own_mixed = mixed_by_owner[me].to_vec();
        let receive_positions = without(&mixed_by_owner, me).concat();
        let rows_in = local_frontier.len();
        let mut source = vec![0u32; mixed.len()];
        for (&position, &local) in own_mixed.iter().zip(own_local) {
            source[position as usize] = local;
        }
        for (received, &position) in receive_positions.iter().enumerate() {
            source[position as usize] = (rows_in + received) as u32;
        }
        let (send, own) = (send_positions.to_vec(), (own_mixed, own_local.to_vec()));
        let index = Index { send, receive: receive_positions, own, source };
        let shuffle = Shuffle {
            rows_in,
            rows_out: mixed.len(),
            send: Counts::without(asked_counts.clone(), me),
            receive: Counts::without(split.counts.clone(), me),
            on_host: index.into(),
            on_device: OnDevice::default(),
        };
        Ok((local_frontier, Exchange::Shuffle(Box::new(shuffle))))
    }

    /// Whether nothing moves.
    pub fn is_identity(&self) -> bool {
        matches!(self, Self::Identity)
    }

    /// Gives what is on the GPU to another stream ([`DeviceBuffer::give_to`](gsplit_kernels::DeviceBuffer::give_to)).
    pub(crate) fn give_to(&self, gpu: &Gpu) {
        if let Self::Shuffle(shuffle) = self {
            shuffle.on_device.give_to(gpu);
        }
    }

    /// Rows that come from other ranks in one `forward`.
    pub fn rows_received(&self) -> usize {
        match self {
            Self::Identity => 0,
            Self::Shuffle(shuffle) => shuffle.receive.0.iter().sum(),
        }
    }

    /// From one row of `dim` values for each vertex of the local frontier to one for each of the mixed frontier.
    /// Collective.
    pub fn forward(&self, comm: &dyn Communicator, rows: Vec<f32>, dim: usize) -> Result<Vec<f32>> {
        let Self::Shuffle(shuffle) = self else { return Ok(rows) };
        let index = shuffle.index()?;
        let mut send = vec![0f32; index.send.len() * dim];
        gather_f32(&rows, dim, &index.send, &mut send)?;
        let received = all_to_all_v(comm, &send, &shuffle.send.elements(dim), &shuffle.receive.elements(dim))?;
        let mut mixed = vec![0f32; shuffle.rows_out * dim];
        let row = |position: u32| {
            let position = position as usize;
            match position.checked_sub(shuffle.rows_in) {
                None => &rows[position * dim..(position + 1) * dim],
                Some(position) => &received[position * dim..(position + 1) * dim],
            }
        };
        gather_rows(row, &index.source, dim, &mut mixed)?;
        Ok(mixed)
    }

    /// The transpose of [`Exchange::forward`]: from one row for each vertex of the mixed frontier to sums for the local
    /// frontier. Collective.
    pub fn backward(&self, comm: &dyn Communicator, mixed: Vec<f32>, dim: usize) -> Result<Vec<f32>> {
        let Self::Shuffle(shuffle) = self else { return Ok(mixed) };
        let index = shuffle.index()?;
        let mut send = vec![0f32; index.receive.len() * dim];
        gather_f32(&mixed, dim, &index.receive, &mut send)?;
        let received = all_to_all_v(comm, &send, &shuffle.receive.elements(dim), &shuffle.send.elements(dim))?;
        let mut rows = vec![0f32; shuffle.rows_in * dim];
        let (own_mixed, own_local) = &index.own;
        let mut own = vec![0f32; own_mixed.len() * dim];
        gather_f32(&mixed, dim, own_mixed, &mut own)?;
        scatter_add_f32(&mut rows, dim, own_local, &own)?;
        scatter_add_f32(&mut rows, dim, &index.send, &received)?;
        Ok(rows)
    }
}

/// All groups but that of rank `me`.
fn without<'a>(groups: &[&'a [u32]], me: usize) -> Vec<&'a [u32]> {
    groups.iter().enumerate().filter(|&(rank, _)| rank != me).map(|(_, &group)| group).collect()
}

/// Cuts `items` into consecutive groups of the given lengths.
fn groups<'a>(items: &'a [u32], counts: &[usize]) -> Vec<&'a [u32]> {
    let mut rest = items;
    counts
        .iter()
        .map(|&count| {
            let (group, tail) = rest.split_at(count);
            rest = tail;
            group
        })
        .collect()
}
