//! Room on GPUs.

/// Bytes of their GPUs' memory that the ranks of this process have for the graph and for feature rows; a dry run finds them
/// ([`DeviceRoom::find`]).
pub struct DeviceRoom(pub(crate) Vec<u64>);

impl DeviceRoom {
    /// Bytes of the rank at place `index` of this process's.
    pub fn of(&self, index: usize) -> u64 {
        self.0.get(index).or(self.0.first()).copied().unwrap_or(0)
    }

    /// A room of so many bytes for each of the ranks.
    #[cfg(test)]
    pub fn given(bytes: u64, ranks: usize) -> Self {
        Self(vec![bytes; ranks])
    }
}
