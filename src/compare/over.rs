//! An option that grows from table to table, as in GSplit's sections 6.4 and 6.5.

use std::fmt;
use std::str::FromStr;

use clap::ValueEnum;
use gsplit_kernels::schedule::Fanouts;

use super::side_by_side::SideBySide;
use gsplit::ui::usage;

/// An option of a comparison and its values: `ranks=1,2,4`.
#[derive(Clone, Debug)]
pub struct Over {
    option: Growing,
    pub values: Vec<usize>,
}

/// The options that can grow, as in GSplit's Figure 6.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Growing {
    Ranks,
    Groups,
    Hidden,
    BatchSize,
    Layers,
}

impl FromStr for Over {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let problem = || "expected an option and its values, as ranks=1,2,4: ranks, groups, hidden, batch-size or layers";
        let (option, values) = text.split_once('=').ok_or_else(problem)?;
        let values =
            values.split(',').map(str::parse).collect::<Result<_, _>>().map_err(|_| problem())?;
        Ok(Self { option: Growing::from_str(option, false).map_err(|_| problem())?, values })
    }
}

impl fmt::Display for Over {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.option.to_possible_value().map_or(Ok(()), |name| f.write_str(name.get_name()))
    }
}

impl Over {
    /// `systems` with the option set to `value`. Each group has as many ranks as `systems` has.
    pub fn at(&self, value: usize, systems: &SideBySide) -> anyhow::Result<SideBySide> {
        let mut systems = systems.clone();
        let setting = &mut systems.setting;
        match self.option {
            Growing::Ranks => setting.ranks = value,
            Growing::Groups => {
                (setting.groups, setting.ranks) = (value, value.saturating_mul(setting.ranks))
            }
            Growing::Hidden => setting.model.hidden = value,
            Growing::BatchSize => setting.batch_size = value,
            Growing::Layers => {
                setting.model.layers = value;
                setting.fanouts = of_layers(&setting.fanouts, value)?;
            }
        }
        Ok(systems)
    }
}

/// `fanouts` for this number of `layers` (at least one): repeats the last fanout, or drops the last
/// ones.
fn of_layers(fanouts: &Fanouts, layers: usize) -> anyhow::Result<Fanouts> {
    let text = fanouts.to_string();
    let given: Vec<&str> = text.split(',').collect();
    let all = given.iter().chain(given.last().into_iter().cycle()).take(layers.max(1));
    let fanouts = all.copied().collect::<Vec<_>>().join(",").parse();
    fanouts.map_err(|problem| usage(format!("--over layers={layers}: {problem}")))
}
