//! Room on GPUs.

/// Bytes of GPU memory that the ranks of this process can use for the graph and for feature rows; a
/// dry run finds them ([`DeviceRoom::find`]).
pub struct DeviceRoom(pub(crate) Vec<u64>);

impl DeviceRoom {
    /// Bytes for the rank at `index` among those of this process.
    pub fn of(&self, index: usize) -> u64 {
        self.0.get(index).or(self.0.first()).copied().unwrap_or(0)
    }

    /// A room of `bytes` bytes for each of `ranks` ranks.
    #[cfg(test)]
    pub fn given(bytes: u64, ranks: usize) -> Self {
        Self(vec![bytes; ranks])
    }
}
