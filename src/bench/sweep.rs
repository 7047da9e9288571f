//! `gsplit bench sweep`: the systems side by side while one option grows, as in GSplit's section 6.4 and 6.5.

use std::path::PathBuf;

use clap::ValueEnum;
use gsplit_kernels::schedule::Fanouts;
use gsplit_store::Dataset;
use serde_json::{Value, json};

use super::side_by_side::{Found, SideBySide, header};
use gsplit::ui::{Ui, usage};

/// Compare training systems while one option grows
///
/// One line a value and system, with the columns of `gsplit compare DATASET`; with --json one object a line. What is swept takes the
/// place of its own option. These are GSplit's Figure 6: ranks (a), groups, which are its hosts, of --ranks each (b), hidden values
/// (c), seeds of a mini-batch (d) and layers (e). Its (d) and (e) have --hidden 128. With more layers than --fanouts has, the last
/// fanout is repeated.
///
/// Presamples and maps are stored in the dataset for each value that needs its own.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  gsplit bench sweep products --over ranks --systems dgl,p3,gsplit
  gsplit bench sweep products --over batch-size --values 256,1024,4096 --hidden 128 --json")]
pub struct Args {
    /// Dataset directory
    dataset: PathBuf,
    /// What grows
    #[arg(long, value_enum)]
    over: Over,
    /// Its values [default: ranks 1,2,4,8; groups 1,2,4; hidden 64,128,256,512; batch-size 256,512,1024,2048,4096; layers 2,3,4,5]
    #[arg(long, value_delimiter = ',', value_name = "N,...")]
    values: Vec<usize>,
    #[command(flatten)]
    systems: SideBySide,
}

/// An option that is swept.
#[derive(Clone, Copy, ValueEnum)]
enum Over {
    /// Ranks, one group of them
    Ranks,
    /// Groups of --ranks ranks each
    Groups,
    /// Hidden values
    Hidden,
    /// Seeds of a mini-batch
    BatchSize,
    /// Layers
    Layers,
}

impl Over {
    fn name(self) -> &'static str {
        match self {
            Self::Ranks => "ranks",
            Self::Groups => "groups",
            Self::Hidden => "hidden",
            Self::BatchSize => "batch-size",
            Self::Layers => "layers",
        }
    }

    fn usual(self) -> &'static [usize] {
        match self {
            Self::Ranks => &[1, 2, 4, 8],
            Self::Groups => &[1, 2, 4],
            Self::Hidden => &[64, 128, 256, 512],
            Self::BatchSize => &[256, 512, 1024, 2048, 4096],
            Self::Layers => &[2, 3, 4, 5],
        }
    }

    /// `systems` with this option at `value`.
    fn at(self, value: usize, systems: &SideBySide) -> anyhow::Result<SideBySide> {
        let mut systems = systems.clone();
        let setting = &mut systems.setting;
        match self {
            Self::Ranks => setting.ranks = value,
            Self::Groups => (setting.groups, setting.ranks) = (value, value.saturating_mul(setting.ranks)),
            Self::Hidden => setting.model.hidden = value,
            Self::BatchSize => setting.batch_size = value,
            Self::Layers => {
                setting.model.layers = value;
                setting.fanouts = of_layers(&setting.fanouts, value)?;
            }
        }
        Ok(systems)
    }
}

/// `fanouts` of so many layers, at least one: the last one is repeated, or the last ones are left out.
fn of_layers(fanouts: &Fanouts, layers: usize) -> anyhow::Result<Fanouts> {
    let text = fanouts.to_string();
    let given: Vec<&str> = text.split(',').collect();
    let all = given.iter().chain(given.last().into_iter().cycle()).take(layers.max(1));
    all.copied().collect::<Vec<_>>().join(",").parse().map_err(|problem| usage(format!("--values {layers}: {problem}")))
}

/// Runs the systems for each value, and prints their lines as they come.
pub fn run(args: Args, ui: &Ui) -> anyhow::Result<()> {
    let name = args.over.name();
    let values = if args.values.is_empty() { args.over.usual() } else { &args.values };
    let sweep = values.iter().map(|&value| Ok((value, args.over.at(value, &args.systems)?)));
    let sweep = sweep.collect::<anyhow::Result<Vec<_>>>()?;
    for (value, systems) in &sweep {
        systems.choose().map_err(|error| error.context(format!("--over {name}, value {value}")))?;
    }
    let dataset = Dataset::open(&args.dataset)?;
    ui.say(args.systems.setting.line(&dataset));
    ui.say(format_args!("{name:>10} {}", header()));
    for (value, systems) in sweep {
        let Found { rows, left_out } = systems.measure(&dataset, ui)?;
        let told = |system: &str, more: Value| {
            let mut told = json!({ "over": name, "value": value, "system": system });
            if let (Some(told), Value::Object(more)) = (told.as_object_mut(), more) {
                told.extend(more);
            }
            ui.json(&told);
        };
        for row in &rows {
            ui.say(format_args!("{value:>10} {}", row.line()));
            told(row.system.name(), row.json());
        }
        for (system, why) in left_out {
            ui.say(format_args!("{value:>10} {} is left out: {why}", system.name()));
            told(system.name(), json!({ "left_out": why }));
        }
    }
    Ok(())
}
