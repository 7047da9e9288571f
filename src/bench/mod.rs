//! `gsplit bench`: comparisons of training systems, by name of the table that they fill.

use gsplit::ui::Ui;

mod prepare;
mod row;
mod table3;

/// Time training systems side by side
#[derive(clap::Args)]
#[command(after_help = "Example:\n  gsplit bench table3 products --device cuda --ranks 4")]
pub struct Args {
    #[command(subcommand)]
    table: Table,
}

#[derive(clap::Subcommand)]
enum Table {
    Table3(Box<table3::Args>),
}

/// Runs the comparison that was asked for.
pub fn run(args: Args, ui: &Ui) -> anyhow::Result<()> {
    match args.table {
        Table::Table3(args) => table3::run(*args, ui),
    }
}
