//! Weights of vertices that the user names among the columns, checked where they are read.

use gsplit_store::{Progress, vertex_weight};

use super::raw::{Column, Raw, describe_column, numbers};
use super::table::choice::file_name;
use crate::{Error, Result};

/// Makes the columns of `raw` with these `names` weights of its vertices.
pub fn weigh_vertices(raw: &mut Raw, names: &[String]) -> Result<()> {
    for name in names {
        let file = file_name(name);
        let at = raw.columns.iter().position(|column| column.name().eq_ignore_ascii_case(&file));
        let Some(at) = at else {
            let columns: Vec<&str> = raw.columns.iter().map(|column| column.name()).collect();
            let found = if columns.is_empty() { "none".into() } else { columns.join(", ") };
            let problem = format!(
                "expected a column of numbers of the vertices that are not features, found {found}"
            );
            return Err(Error::Option(format!("--schema vertex-weights={name}: {problem}")));
        };
        let column = raw.columns.remove(at);
        if raw.vertex_weights.iter().any(|weight| weight == column.name()) {
            return Err(Error::Option(format!(
                "--schema vertex-weights={name}: named twice: leave one out"
            )));
        }
        raw.vertex_weights.push(column.name().to_string());
        raw.columns.insert(at, Box::new(WeightColumn(column)));
    }
    Ok(())
}

/// A column whose numbers are weights.
struct WeightColumn(Box<dyn Column>);

impl Column for WeightColumn {
    describe_column!(self:
        self.0.path(),
        self.0.name(),
        self.0.descr(),
        self.0.width(),
        self.0.num_rows()
    );

    fn read(
        &self,
        progress: &dyn Progress,
        take: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let (width, mut at) = (self.width(), 0);
        self.0.read(progress, &mut |bytes| {
            for value in numbers(self.descr(), bytes) {
                vertex_weight(value)
                    .map_err(|problem| self.error((at / width) as u64, at % width, &problem))?;
                at += 1;
            }
            take(bytes)
        })
    }

    fn missing_row(&self) -> Result<Vec<u8>> {
        let problem =
            "a vertex that the table does not list has no weight: pass --schema missing-rows=drop";
        Err(Error::input(self.path(), format!("{}: {problem}", self.name())))
    }

    fn error(&self, row: u64, column: usize, problem: &str) -> Error {
        self.0.error(row, column, problem)
    }
}
