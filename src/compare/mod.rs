//! `gsplit compare`: systems side by side on a dataset, or training logs.
//!
//! ```text
//! setting ─▶ prepare: presample and maps ─▶ run, a process for each system ─▶ side_by_side: rows
//!                                  over: all of it once more for each value of an option
//! ```

use std::path::{Path, PathBuf};

use gsplit_store::Dataset;
use serde_json::{Value, json};

use gsplit::ui::{Ui, usage};
use over::Over;
use side_by_side::{HEADS, SideBySide, SystemRow};

mod logs;
mod over;
mod prepare;
mod run;
mod setting;
mod side_by_side;

pub use prepare::own_key;
pub use setting::Setting;

/// Compare training systems on a dataset, or training runs by their logs
///
/// With a dataset directory: trains every system that this machine can run on the same
/// mini-batches, each in its own process, and prints one row per system about its last epoch: the
/// loss, whether it equals the first row's up to rounding (a thousandth), edges computed, feature
/// rows loaded, megabytes that ranks sent to each other in memory, between GPUs, between processes
/// of a host and over the network, seconds by phase (mean of the ranks; waiting is a part of the
/// exchange), the wall time, and the peak memory of the process, mapped files included. GraNNDis
/// makes its own mini-batches: its loss is not comparable. Systems that cannot run here are listed
/// with the reason. Nothing is prepared ahead, so that phases add up. P3 updates at once, as the
/// others do. The presamples and maps that the systems need are kept in a cache of the dataset
/// (`tried/`), which gsplit clean empties.
///
/// With logs: prints one row per log: the last epoch's loss and accuracy, and per epoch the mean of
/// seconds, edges computed, feature rows loaded, rows exchanged and bytes that ranks sent to each
/// other, with the ratio to the first log.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  gsplit compare products --ranks 4
  gsplit compare products --ranks 4 --systems dgl,quiver,gsplit --device cuda
  gsplit compare products --over ranks=1,2,4,8 --systems dgl,p3,gsplit
  gsplit compare products --ranks 4 --groups 2 --systems dgl,gsplit,granndis --batches-per-epoch 8 --json
  gsplit compare runs/single.jsonl runs/data.jsonl runs/split.jsonl")]
pub struct Args {
    /// Dataset directory, or logs written by `gsplit train --log`
    #[arg(required = true, value_name = "DATASET|LOG.jsonl")]
    inputs: Vec<PathBuf>,
    /// Make a table for each value of an option, e.g. ranks=1,2,4: of ranks, groups (of --ranks
    /// each), hidden, batch-size or layers (the last fanout is repeated)
    #[arg(long, value_name = "OPTION=N,...")]
    over: Option<Over>,
    #[command(flatten)]
    pub systems: SideBySide,
}

/// Compares the systems or the logs that `args` name.
pub fn run(args: Args, ui: &Ui) -> anyhow::Result<()> {
    match (&args.inputs[..], args.inputs.iter().find(|input| input.is_dir())) {
        ([dataset], Some(_)) => args.on(dataset, ui),
        (_, Some(folder)) => Err(usage(format!(
            "{}: is a directory: name one dataset, or only logs",
            folder.display()
        ))),
        (logs, None) => logs::run(logs, ui),
    }
}

impl Args {
    /// Runs the systems on a dataset.
    fn on(&self, dataset: &Path, ui: &Ui) -> anyhow::Result<()> {
        let tables = self.tables()?;
        let dataset = Dataset::open(dataset)?;
        let mut told = Vec::new();
        for (value, systems) in &tables {
            let (rows, left_out) = systems.measure(&dataset, ui)?;
            let setting = &systems.setting;
            ui.say(setting.line(&dataset));
            ui.columns(HEADS, rows.iter().map(SystemRow::cells));
            for (system, why) in &left_out {
                ui.say(format_args!("{} is left out: {why}", system.name));
            }
            let systems: Vec<Value> = rows.iter().map(|row| row.json()).collect();
            told.push(setting.json(
                &dataset,
                &left_out,
                json!({ "value": value, "systems": systems }),
            ));
        }
        match &self.over {
            Some(over) => ui.json(&json!({ "over": over.option, "tables": told })),
            None => told.iter().for_each(|table| ui.json(table)),
        }
        Ok(())
    }

    /// The systems of each table and the value of the growing option.
    fn tables(&self) -> anyhow::Result<Vec<(Option<usize>, SideBySide)>> {
        let Some(over) = &self.over else {
            self.systems.choose()?;
            return Ok(vec![(None, self.systems.clone())]);
        };
        let table = |&value: &usize| {
            let systems = over.at(value, &self.systems)?;
            systems
                .choose()
                .map_err(|error| error.context(format!("--over {}={value}", over.option)))?;
            Ok((Some(value), systems))
        };
        over.values.iter().map(table).collect()
    }
}
