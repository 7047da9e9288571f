//! An option that grows from table to table, as in GSplit's sections 6.4 and 6.5.

use std::str::FromStr;

use gsplit_kernels::schedule::Fanouts;

use super::side_by_side::SideBySide;
use gsplit::ui::usage;

/// An option of a comparison and its values: `ranks=1,2,4`, as in GSplit's Figure 6.
#[derive(Clone, Debug)]
pub struct Over {
    pub option: String,
    pub values: Vec<usize>,
}

const EXPECTED: &str = "expected an option and its values, as ranks=1,2,4: ranks, groups, hidden, batch-size or layers";

impl FromStr for Over {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (option, values) = text.split_once('=').ok_or(EXPECTED)?;
        let values = values.split(',').map(str::parse).collect::<Result<_, _>>();
        Ok(Self { option: option.into(), values: values.map_err(|_| EXPECTED)? })
    }
}

impl Over {
    /// `systems` with the option set to `value`. Each group has as many ranks as `systems` has.
    pub fn at(&self, value: usize, systems: &SideBySide) -> anyhow::Result<SideBySide> {
        let mut systems = systems.clone();
        let setting = &mut systems.setting;
        match self.option.as_str() {
            "ranks" => setting.ranks = value,
            "groups" => {
                (setting.groups, setting.ranks) = (value, value.saturating_mul(setting.ranks))
            }
            "hidden" => setting.model.hidden = value,
            "batch-size" => setting.batch_size = value,
            "layers" => {
                setting.model.layers = value;
                setting.fanouts = of_layers(&setting.fanouts, value)?;
            }
            other => return Err(usage(format!("--over {other}: {EXPECTED}"))),
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
