//! Partitions side by side, as they are stored and as fresh mini-batches find them, and what a cache would serve.

use anyhow::Result;
use gsplit::chart::{Axis, Bars, Line, Lines, Scale, Series};
use gsplit::ui::Ui;
use gsplit_partition::evaluate::{self as measure, Evaluation, Options};
use gsplit_store::{Checksum, Dataset, PartitionMap, Presample, shell_path};
use rayon::prelude::*;

use super::found::{Found, TrainingRun};
use super::page::Page;
use crate::evaluate::{plot, table};
use crate::inspect::artifacts;
use crate::inspect::words::percent;

/// Hottest rows, in percent of all, that the table of a cache curve has.
const SHARES: [f64; 9] = [0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0];
/// Points of a cache curve.
const POINTS: u32 = 48;

/// Adds the sections, those that runs used first. Partitions are measured on so many mini-batches, unless the graph is too large for that.
pub fn show(
    page: &mut Page,
    (dataset, found): (&Dataset, &Found),
    (batches, affordable): (u32, bool),
    ui: &Ui,
) -> Result<()> {
    let path = shell_path(dataset.path());
    let (mut maps, mut presamples) = (Vec::new(), Vec::new());
    for (key, map) in artifacts(dataset, "partition", PartitionMap::open)? {
        match map {
            Ok(map) => maps.push(map),
            Err(error) => page.leave_out(&format!("Partition {key}"), error.to_string()),
        }
    }
    for (key, presample) in artifacts(dataset, "presample", Presample::open)? {
        match presample {
            Ok(presample) => presamples.push(presample),
            Err(error) => page.leave_out(&format!("Presample {key}"), error.to_string()),
        }
    }
    maps.sort_by_key(|map| users(map, found).is_empty());
    let measured = "Cross edges and balance by layer";
    // Runs on one rank need neither a partition nor a presample, so the page does not ask for them.
    let of_one = !found.runs.is_empty() && found.runs.iter().all(|run| run.option("parallelism") == Some("single"));
    if maps.is_empty() {
        if !of_one {
            page.leave_out("Partitions", format!("there are none: gsplit partition {path} --parts 4"));
        }
    } else {
        page.section("Partitions", |page| stored(page, &maps, found));
        match presample_of(&maps, &presamples) {
            None => page
                .leave_out(measured, format!("no presample tells which mini-batches: {}", presample(dataset, found))),
            Some(_) if !affordable => {
                page.leave_out(measured, "all edges would be read: gsplit report with --full".to_string());
            }
            Some(presample) => {
                let setting = Options { batches, ..Options::default() }.setting(Some(presample));
                let found =
                    setting.and_then(|setting| measure::evaluate(dataset, &maps, Some(presample), &setting, ui));
                match found {
                    Ok(found) => page.section(measured, |page| by_layer(page, &found, presample)),
                    Err(error) => page.leave_out(measured, error.to_string()),
                }
            }
        }
    }
    if !presamples.is_empty() {
        page.section("Cache", |page| cache(page, &presamples));
    } else if !of_one {
        page.leave_out("Cache", format!("no presample counts the loads: {}", presample(dataset, found)));
    }
    Ok(())
}

/// Command that makes a presample with the fanouts of the first run that has some, or the default ones.
fn presample(dataset: &Dataset, found: &Found) -> String {
    let fanouts = found.runs.iter().find_map(|run| run.option("fanouts")).unwrap_or("15,10,5");
    format!("gsplit presample {} --fanouts {fanouts}", shell_path(dataset.path()))
}

/// The presample that the first of the maps with one was made with, or the first.
fn presample_of<'a>(maps: &[PartitionMap], presamples: &'a [Presample]) -> Option<&'a Presample> {
    let mut used = maps.iter().filter_map(|map| Some(&map.meta().made_from.presample.as_ref()?.0));
    let found = used.find_map(|key| presamples.iter().find(|presample| presample.key() == key));
    found.or(presamples.first())
}

/// Names of the runs whose checkpoints say that they used this very map.
fn users<'a>(map: &PartitionMap, found: &'a Found) -> Vec<&'a str> {
    let is_this = |(key, assignment): &(String, Checksum)| {
        let own = map.meta().files.get("assignment.npy");
        key == map.key() && own.is_some_and(|own| own.checksum == *assignment)
    };
    let used = |run: &&TrainingRun| Some(is_this(run.checkpoint.as_ref()?.inputs.partition.as_ref()?));
    found.runs.iter().filter(|run| used(run) == Some(true)).map(|run| run.name.as_str()).collect()
}

/// Shows what the documents of `maps` say.
fn stored(page: &mut Page, maps: &[PartitionMap], found: &Found) {
    let head = [
        "partition",
        "used by",
        "parts",
        "by",
        "weights",
        "presample",
        "pairs cut",
        "cross edges",
        "imbalance",
        "vertices",
        "edges",
        "targets",
        "work",
    ];
    let row = |map: &PartitionMap| {
        let (config, report) = (&map.meta().config, &map.meta().report);
        let presample = map.meta().made_from.presample.as_ref().map_or("-", |(key, _)| key);
        let factor = |factor: f64| format!("{factor:.3}");
        let maybe = |balance: Option<f64>| balance.map_or_else(|| "-".into(), factor);
        let users = users(map, found);
        vec![
            map.key().to_string(),
            if users.is_empty() { "-".into() } else { users.join(", ") },
            config.parts.to_string(),
            config.partitioner.clone(),
            config.weights.clone(),
            presample.to_string(),
            percent(share_cut(map)),
            percent(report.expected_cross_share),
            factor(report.imbalance),
            factor(report.balance.vertices),
            factor(report.balance.edges),
            maybe(report.balance.targets),
            maybe(report.balance.work),
        ]
    };
    let caption = "As they were made; balance is the heaviest part over the mean";
    page.table(caption, &head, &maps.iter().map(row).collect::<Vec<_>>());
    let bars = |label: &str, floor, groups: &[&str], values: &dyn Fn(&PartitionMap) -> Vec<f64>| Bars {
        label: label.into(),
        floor,
        groups: groups.iter().map(|name| name.to_string()).collect(),
        series: maps.iter().enumerate().map(|(i, map)| Series::new(map.key(), i, values(map))).collect(),
        stacked: false,
    };
    let cut = |map: &PartitionMap| vec![100.0 * share_cut(map), 100.0 * map.meta().report.expected_cross_share];
    let balance = |map: &PartitionMap| {
        let of = &map.meta().report.balance;
        vec![of.vertices, of.edges, of.targets.unwrap_or(f64::NAN), of.work.unwrap_or(f64::NAN)]
    };
    page.charts(|page| {
        page.chart("What is cut", &bars("percent", 0.0, &["pairs cut", "cross edges expected"], &cut));
        let groups = ["vertices", "edges", "targets", "work"];
        page.chart("Balance", &bars("heaviest part / mean", 1.0, &groups, &balance));
    });
}

/// Fraction of the pairs of adjacent vertices that lie in two parts.
fn share_cut(map: &PartitionMap) -> f64 {
    let report = &map.meta().report;
    report.cut as f64 / report.adjacent_pairs.max(1) as f64
}

/// Shows the numbers of `evaluate`.
fn by_layer(page: &mut Page, found: &Evaluation, presample: &Presample) {
    page.text(&format!(
        "Measured on {}, as of presample {}; numbers are means over mini-batches.",
        found.setting,
        presample.key()
    ));
    page.charts(|page| {
        let titles = [
            ("Cross edges by layer", "% of the sampled"),
            ("Imbalance of sampled edges by layer", "heaviest rank / mean"),
        ];
        for ((title, label), panel) in titles.into_iter().zip(plot::panels(found)) {
            page.chart(title, &Bars { label: label.into(), ..panel });
        }
    });
    let names = found.maps.iter().map(|map| map.key.clone().unwrap_or_else(|| "random".into()));
    let head: Vec<String> = ["a mini-batch".to_string()].into_iter().chain(names).collect();
    let rows =
        table(&found.maps).into_iter().map(|(label, cells)| [vec![label.replacen("  ", "– ", 1)], cells].concat());
    page.table("All numbers of gsplit evaluate", &head, &rows.collect::<Vec<_>>());
}

/// How many of the loads the hottest rows are.
fn cache(page: &mut Page, presamples: &[Presample]) {
    page.text(
        "The share of all loads of feature rows that a cache of the most loaded rows would serve, by its size, as the counts of each \
         presample have it.",
    );
    let curves: Vec<Curve> = presamples.iter().map(|presample| Curve::of(presample.input())).collect();
    let grid: Vec<f64> =
        (0..=POINTS).map(|i| 100.0 * 10f64.powf(-3.0 * f64::from(POINTS - i) / f64::from(POINTS))).collect();
    let line = |(i, (presample, curve)): (usize, (&Presample, &Curve))| {
        Line::new(presample.key(), i, grid.iter().map(|&percent| [percent, curve.at(percent)]))
    };
    let chart = Lines {
        x: Axis::new("hottest rows, % of all", Scale::Log),
        y: Axis::new("loads served, %", Scale::Linear),
        lines: presamples.iter().zip(&curves).enumerate().map(line).collect(),
    };
    let head: Vec<String> = [chart.x.label.clone()]
        .into_iter()
        .chain(presamples.iter().map(|presample| presample.key().to_string()))
        .collect();
    let row = |percent: f64| {
        let cells = curves.iter().map(|curve| format!("{:.1} %", curve.at(percent)));
        [format!("{percent} %")].into_iter().chain(cells).collect::<Vec<_>>()
    };
    page.charts(|page| page.chart_with("Loads served by the hottest rows", &chart, &head, &SHARES.map(row)));
}

/// Loads of the hottest rows, summed up.
struct Curve(Vec<u64>);

impl Curve {
    fn of(loads: &[u32]) -> Self {
        let mut loads = loads.to_vec();
        loads.par_sort_unstable_by(|a, b| b.cmp(a));
        let sum = |sum: &mut u64, load: u32| {
            *sum += u64::from(load);
            Some(*sum)
        };
        Self(loads.into_iter().scan(0, sum).collect())
    }

    /// Percent of the loads that the hottest `percent` of the rows have.
    fn at(&self, percent: f64) -> f64 {
        let rows = (self.0.len() as f64 * percent / 100.0).round() as usize;
        let sum = |rows: usize| rows.checked_sub(1).and_then(|last| self.0.get(last)).copied().unwrap_or(0);
        100.0 * sum(rows) as f64 / sum(self.0.len()).max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hottest_rows_come_first() {
        let curve = Curve::of(&[1, 0, 6, 0, 0, 3, 0, 0, 0, 0]);
        for (percent, served) in [(0.0, 0.0), (10.0, 60.0), (20.0, 90.0), (30.0, 100.0), (100.0, 100.0)] {
            assert_eq!(curve.at(percent), served);
        }
        assert_eq!((Curve::of(&[]).at(50.0), Curve::of(&[0]).at(100.0)), (0.0, 0.0));
    }
}
