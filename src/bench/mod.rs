//! `gsplit bench`: comparisons of training systems, by name of the table that they fill. `gsplit compare DATASET` uses them too.
//!
//! ```text
//! setting ─▶ prepare: presample and maps ─▶ run, a process for each system ─┬─▶ table3: medians of rounds (row)
//!                                                                            └─▶ side_by_side ─▶ compare, sweep, chart
//! ```

use gsplit::ui::Ui;

mod chart;
mod prepare;
mod row;
mod run;
mod setting;
mod side_by_side;
mod sweep;
mod table3;

pub use chart::{MAKER, chart, stacked};
pub use prepare::placed;
pub use setting::Setting;
pub use side_by_side::{Found, SideBySide, header};

/// Time training systems side by side
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  gsplit bench table3 products --device cuda --ranks 4
  gsplit bench sweep products --over ranks --systems dgl,gsplit")]
pub struct Args {
    #[command(subcommand)]
    table: Table,
}

#[derive(clap::Subcommand)]
enum Table {
    Table3(Box<table3::Args>),
    Sweep(Box<sweep::Args>),
}

/// Runs the comparison that was asked for.
pub fn run(args: Args, ui: &Ui) -> anyhow::Result<()> {
    match args.table {
        Table::Table3(args) => table3::run(*args, ui),
        Table::Sweep(args) => sweep::run(*args, ui),
    }
}
