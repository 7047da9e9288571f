//! Options that `gsplit run` chooses where the command line leaves them open, and the checks of its
//! requirements.

use gsplit_preprocess::convert::ConvertOptions;
use gsplit_preprocess::read::options::Answer;
use gsplit_store::{Dataset, Split};
use gsplit_trainer::{Config, TaskConfig, unscored};

use crate::train::as_usage;

/// Whether the words `given` contain the option `flag`.
pub fn has(given: &[String], flag: &str) -> bool {
    given.iter().any(|word| {
        word.strip_prefix("--").is_some_and(|word| word.split('=').next() == Some(flag))
    })
}

/// The option of convert that makes features of the structure without the links that training holds
/// out, unless that is its default for two kinds of vertices.
pub fn held_out(convert: &ConvertOptions, task: &TaskConfig) -> Option<String> {
    let (share, default) = (task.valid_edges + task.test_edges, TaskConfig::default());
    let is_other = (task.valid_edges, task.test_edges, task.edge_seed)
        != (default.valid_edges, default.test_edges, default.edge_seed);
    let wanted = task.is_link() && convert.read.schema.bipartite == Some(Answer::Yes) && is_other;
    (wanted && convert.held_out_links.is_none())
        .then(|| format!("--held-out-links={share},{}", task.edge_seed))
}

/// Options of convert that the user left open and the task decides: numbers are not classes,
/// labelled vertices need splits, and vertices of two kinds only have features of the structure.
pub fn of_convert(convert: &ConvertOptions, config: &Config) -> Vec<String> {
    let (read, is_link) = (&convert.read, config.data.task.is_link());
    let needs_splits =
        !is_link && convert.random_split.is_none() && read.schema.split_name.is_none();
    let is_number = config.data.task.is_regression() && read.schema.label_kind.is_none();
    let has_no_label = is_link && read.nodes.is_some() && read.schema.label_column.is_none();
    let is_bare =
        is_link && read.schema.bipartite == Some(Answer::Yes) && convert.features.is_none();
    let words = [
        (is_bare, "--features=fastrp:64"),
        (needs_splits, "--random-split=auto"),
        (is_number, "--schema=label-kind=number"),
        (has_no_label, "--label-column=none"),
    ];
    words.into_iter().filter(|(is_open, _)| *is_open).map(|(_, word)| word.to_string()).collect()
}

/// The words of train `given`, with suitable options for links where they are left open: many
/// negatives for few edges, and small rows, since a model of links soon overfits its edges.
pub fn for_links(given: &[String]) -> Vec<String> {
    const SUIT_LINKS: [[&str; 2]; 7] = [
        ["layers", "2"],
        ["fanouts", "10,10"],
        ["hidden", "64"],
        ["lr", "0.003"],
        ["batch-size", "512"],
        ["negatives", "4"],
        ["scorer", "mlp"],
    ];
    let is_link = given.iter().any(|word| word == "--task=link")
        || given.windows(2).any(|words| words == ["--task", "link"]);
    let shape = ["layers", "fanouts"];
    let is_open = |flag: &str| {
        !has(given, flag)
            && (!shape.contains(&flag) || !shape.into_iter().any(|flag| has(given, flag)))
    };
    let open = SUIT_LINKS.iter().filter(|[flag, _]| is_link && is_open(flag));
    given.iter().cloned().chain(open.map(|[flag, value]| format!("--{flag}={value}"))).collect()
}

/// Options of train that `given` leaves open and that decide how well and how long it learns
/// `dataset`.
///
/// The rate is 0.01 and the number of epochs raises the valid score, within bounds that depend on
/// the mini-batches per epoch: on small graphs an epoch is one mini-batch, on large ones an epoch
/// takes long.
///
/// Trials of several rates gave no improvement: on cora and ogbn-arxiv 0.01 was better than 0.001.
pub fn of_train(
    dataset: &Dataset,
    config: &Config,
    given: &[String],
) -> anyhow::Result<Vec<String>> {
    let is_given = |flag: &str| has(given, flag);
    let mut chosen = Vec::new();
    if !["lr", "optimizer"].into_iter().any(is_given) {
        chosen.push("--lr=0.01".to_string());
    }
    if is_given("epochs") {
        return Ok(chosen);
    }
    let is_link = config.data.task.is_link();
    let items = match is_link {
        true => dataset.topology().num_edges() / 2,
        false => dataset.split(Split::Train)?.len(),
    };
    let steps = match config.system.parallelism.cooperates() {
        true => config.system.cooperative.batches() as u32,
        false => u32::try_from(items.div_ceil(config.data.batch_size)).unwrap_or(u32::MAX),
    };
    let steps = steps.max(1);
    let has_valid = match is_link {
        true => config.data.task.valid_edges > 0.0 || dataset.links()?.is_some(),
        // Without a score nothing could stop the training early.
        false => {
            unscored(dataset, config.data.task.metric, Split::Valid).map_err(as_usage)?.is_none()
        }
    };
    if has_valid && config.run.eval_every > 0 {
        chosen.push(format!("--epochs={}", (5000 / steps).clamp(20, 300)));
        if !is_given("patience") {
            chosen.push(format!("--patience={}", (500 / steps).clamp(5, 30)));
        }
    } else {
        chosen.push(format!("--epochs={}", (1000 / steps).clamp(10, 100)));
    }
    Ok(chosen)
}

/// Fails with everything that training needs and `dataset` lacks, and the options that provide it.
pub fn check_ready(dataset: &Dataset, config: &Config, is_dataset: bool) -> anyhow::Result<()> {
    let (manifest, is_link) = (dataset.manifest(), config.data.task.is_link());
    let has_labels = manifest.num_classes.is_some() || manifest.numeric_label;
    let has_train = manifest.splits().contains(&Split::Train)
        && dataset.split(Split::Train).is_ok_and(|train| !train.is_empty());
    // Types without features have learnt rows.
    let is_typed = dataset.types().is_some();
    let lacks = [
        (
            manifest.features.is_none() && !is_typed,
            "features to learn from (--features=fastrp:64 makes them of the graph's structure)",
        ),
        (!is_link && !has_labels && is_typed, "labels of any type to learn"),
        (
            !is_link && !has_labels && !is_typed,
            "labels to learn (--nodes FILE names a table of the vertices that has some; -- \
             --task=link learns the edges)",
        ),
        (
            !is_link && has_labels && !has_train,
            "training vertices (--random-split=0.6,0.2,0.2 draws them)",
        ),
    ];
    let lacking = lacks.into_iter().filter_map(|(lacks, what)| lacks.then_some(what));
    let lacking = lacking.collect::<Vec<_>>().join(", no ");
    let again = if is_dataset { ": convert the graph again with these options" } else { "" };
    anyhow::ensure!(lacking.is_empty(), "{}: has no {lacking}{again}", dataset.path().display());
    Ok(())
}
