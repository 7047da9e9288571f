//! What the tests of readers have in common, and tests of several readers.

mod bombs;
pub(crate) mod golden;
