//! A table of vertices on the way to its recipe, as the functions that decide on its columns are
//! given it.

use std::collections::HashMap;
use std::path::Path;

use gsplit_store::{Progress, Recipe};

use super::choice::{self, Field};
use super::rows::Table;
use super::statistics::ColumnStatistics;
use crate::Error;
use crate::read::options::{ReadOptions, Schema};

/// A table of vertices with the options of the user and the statistics of its values.
pub struct Surveyed<'a> {
    /// The file, or the folder of its parts.
    pub path: &'a Path,
    /// The table.
    pub table: &'a Table,
    /// Its columns.
    pub fields: &'a [Field],
    /// Options of the user.
    pub options: &'a ReadOptions,
    /// Keys that the user gave.
    pub schema: &'a Schema,
    /// The recipe of an earlier table that this one is to be read by.
    pub trained: Option<&'a Recipe>,
    /// Statistics of the columns that were surveyed, by their places.
    pub seen: HashMap<usize, ColumnStatistics>,
    /// Takes the lines for the user.
    pub progress: &'a dyn Progress,
}

impl Surveyed<'_> {
    /// A problem with the table.
    pub fn wrong(&self, problem: impl Into<String>) -> Error {
        Error::input(self.path, problem)
    }

    /// Returns the error for a missing column, with the names of the existing columns.
    pub fn lacks(&self, problem: &str) -> Error {
        self.wrong(format!("{problem}. There are {}", choice::names(self.fields)))
    }

    /// Reports a decision on the table.
    pub fn say(&self, decision: &str) {
        self.progress.decide(&format!("{}: {decision}", self.path.display()));
    }

    /// Reports something about the table that the user should look at.
    pub fn note(&self, text: &str) {
        self.progress.decide(&format!("note: {}: {text}", self.path.display()));
    }
}
