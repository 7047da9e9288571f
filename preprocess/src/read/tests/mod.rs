//! Helpers of the tests of readers, and tests of several readers.

mod bombs;
pub(crate) mod golden;
