//! `gsplit-train`: the subcommands of gsplit that need libtorch. `gsplit` hands them over to it.
#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};
use gsplit::headings::of_table;
use gsplit::launch::Launch;
use gsplit::{arguments, child, cli, completions, ui};
use gsplit_store::Allocator;
use gsplit_trainer::operator::calibrated;
use gsplit_trainer::{Device, Dtype};

mod compare;
mod infer;
mod plan;
mod run;
mod system;
mod train;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

/// Trains graph neural networks on the datasets that gsplit prepares.
#[derive(Parser)]
#[command(name = "gsplit", bin_name = "gsplit", version = gsplit::VERSION, max_term_width = 110)]
struct TrainerCli {
    #[command(flatten)]
    output: ui::Output,
    #[command(subcommand)]
    command: TrainerCommand,
}

#[derive(Subcommand)]
enum TrainerCommand {
    Run(Box<run::Args>),
    Train(Box<train::Args>),
    Infer(Box<infer::Args>),
    Compare(Box<compare::Args>),
    Plan(Box<plan::Args>),
    /// Measures this machine's CPU or GPUs and prints its profile as TOML: for gsplit doctor
    #[command(hide = true)]
    Profile {
        #[arg(long, value_enum, default_value = "cpu")]
        device: Device,
    },
    /// Prints the engines for dense products on this machine as JSON: for gsplit doctor
    #[command(hide = true)]
    Products,
    #[command(hide = true)]
    Completions(completions::Args),
    #[command(hide = true)]
    Man(completions::ManArgs),
}

/// The command line, with options under headings.
fn command() -> clap::Command {
    of_table(TrainerCli::command()).mut_subcommand("train", train::grouped)
}

/// The command line of `gsplit`, in which these subcommands have their options.
fn of_both_programs() -> clap::Command {
    let own = command();
    let visible = own.get_subcommands().filter(|sub| !sub.is_hide_set());
    visible.fold(cli::command(), |all, sub| all.mut_subcommand(sub.get_name(), |_| sub.clone()))
}

fn main() -> ExitCode {
    if let Err(problem) = child::end_with_parent() {
        return ui::refuse(&problem, 1);
    }
    gsplit_kernels::before_cuda(Launch::has_several());
    let line = arguments::given();
    let (TrainerCli { output, .. }, _) = parsed(&line);
    match completed(line) {
        Ok(cli) => ui::guard(cli.output, |ui| match cli.command {
            TrainerCommand::Run(args) => run::run(*args, ui),
            TrainerCommand::Train(args) => train::run(*args, ui),
            TrainerCommand::Infer(args) => infer::run(*args, ui),
            TrainerCommand::Compare(args) => compare::run(*args, ui),
            TrainerCommand::Plan(args) => plan::run(*args, ui),
            TrainerCommand::Profile { device } => {
                plan::measure(device)?.text()?.lines().for_each(|line| ui.say(line));
                Ok(())
            }
            TrainerCommand::Products => {
                let found = [Dtype::F32, Dtype::Bf16].map(calibrated);
                ui.json(&serde_json::json!({ "products": found }));
                Ok(())
            }
            TrainerCommand::Completions(args) => completions::run(&args, of_both_programs()),
            TrainerCommand::Man(args) => completions::man(&args, of_both_programs()),
        }),
        Err(error) => ui::guard(output, |_| Err(error)),
    }
}

/// Parses `line`, with the options of the file that `train --config` or `run --config` names; for
/// train, then adds the options of `--preset` and then the options that follow from others.
fn completed(line: Vec<OsString>) -> anyhow::Result<TrainerCli> {
    let (mut cli, given) = parsed(&line);
    let Some((_, given)) = given.subcommand() else { return Ok(cli) };
    let follows = train::leaves_layers_to_fanouts(given);
    match &mut cli.command {
        TrainerCommand::Plan(args) if follows => {
            args.question.model.layers = args.question.fanouts.len();
        }
        TrainerCommand::Compare(args) if follows => {
            let setting = &mut args.systems.setting;
            setting.model.layers = setting.fanouts.len();
        }
        TrainerCommand::Run(args) => {
            let Some(file) = args.read_file(given)? else {
                args.came_from(None, given);
                return Ok(cli);
            };
            let (mut cli, given) = parsed(&run::merged(line, &file));
            if let (TrainerCommand::Run(args), Some((_, given))) =
                (&mut cli.command, given.subcommand())
            {
                args.came_from(Some(file), given);
            }
            return Ok(cli);
        }
        TrainerCommand::Train(args) => {
            args.complete(given)?;
            cli.output = cli.output.with_threads(args.config.system.threads);
        }
        _ => {}
    }
    Ok(cli)
}

fn parsed(line: &[OsString]) -> (TrainerCli, ArgMatches) {
    let command = match line.contains(&format!("--{}", train::HELP_ALL).into()) {
        true => command(),
        false => command().mut_subcommand("train", train::brief),
    };
    let given = command
        .try_get_matches_from(line)
        .unwrap_or_else(|error| run::misplaced(&ui::sober(error)));
    (TrainerCli::from_arg_matches(&given).unwrap_or_else(|error| ui::end(&error)), given)
}

/// A command line with the arguments `more` inserted after its subcommand.
fn with_arguments(line: impl Iterator<Item = OsString>, more: &[String]) -> Vec<OsString> {
    let mut words: Vec<OsString> = line.collect();
    let at = (arguments::subcommand_at(&words) + 1).min(words.len());
    words.splice(at..at, more.iter().map(OsString::from));
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_of_the_file_come_right_after_the_subcommand() {
        let insert = |line: &str| {
            let words = line.split_whitespace().map(OsString::from);
            let words = with_arguments(words, &["--lr=1".to_string(), "--resume".to_string()]);
            words.join(std::ffi::OsStr::new(" ")).into_string().unwrap()
        };
        assert_eq!(insert("gsplit train ds"), "gsplit train --lr=1 --resume ds");
        assert_eq!(
            insert("gsplit --threads 2 -q train -- ds"),
            "gsplit --threads 2 -q train --lr=1 --resume -- ds"
        );
        assert_eq!(insert("gsplit --threads=2 train"), "gsplit --threads=2 train --lr=1 --resume");
    }

    /// The error for the options `words` of `gsplit train`, before the dataset is opened.
    fn complaint(words: &[&str]) -> String {
        let line = ["gsplit", "train", "ds"].iter().chain(words).map(OsString::from).collect();
        let checked = completed(line).and_then(|cli| match cli.command {
            TrainerCommand::Train(args) => args.checked().map(drop),
            _ => unreachable!(),
        });
        checked.unwrap_err().to_string()
    }

    #[test]
    fn each_fanout_is_a_layer_in_plans_and_comparisons() {
        let layers = |line: &str| {
            let cli = completed(line.split_whitespace().map(OsString::from).collect()).unwrap();
            match cli.command {
                TrainerCommand::Plan(args) => args.question.model.layers,
                TrainerCommand::Compare(args) => args.systems.setting.model.layers,
                _ => unreachable!(),
            }
        };
        for command in ["plan", "compare"] {
            let line = format!("gsplit {command} ds");
            assert_eq!(layers(&line), 3, "{command}");
            assert_eq!(layers(&format!("{line} --fanouts 5,5")), 2, "{command}");
            assert_eq!(layers(&format!("{line} --fanouts 5,5 --layers 4")), 4, "{command}");
        }
    }

    #[test]
    fn options_that_nothing_reads_are_refused() {
        for (words, told) in [
            (&["--heads", "8"][..], "--heads is for --model gat and gatv2"),
            (
                &["--parallelism", "single", "--partition", "four"],
                "--partition four: --parallelism single reads no partition",
            ),
            (
                &["--parallelism", "data", "--ranks", "2", "--partition", "two"],
                "--parallelism data reads no partition",
            ),
            (&["--eval-negatives", "50"], "--eval-negatives is for links"),
            (&["--negatives", "2", "--task", "regression"], "--negatives is for links"),
        ] {
            let said = complaint(words);
            assert!(said.contains(told), "{said}");
        }
    }

    #[test]
    fn a_bad_file_is_named_with_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.toml");
        let path = path.to_str().unwrap();
        for (text, line, words) in [
            (
                "lr = 0.1",
                1,
                "unknown field `lr`, expected one of `data`, `model`, `system`, `run`: --print-config \
                 prints each in its table",
            ),
            (
                "\n[run.optimizer]\nlearning_rate = 0.1",
                3,
                "unknown field `learning_rate`, expected one of `kind`, `lr`",
            ),
            (
                "[optimizer]",
                1,
                "unknown field `optimizer`, expected one of `data`, `model`, `system`, `run`: \
                 --print-config prints each in its table",
            ),
            (
                "[model]\nmodel = 'gat'",
                2,
                "unknown field `model`, expected one of `kind`, `layers`",
            ),
            (
                "[model]\nkind = 'gut'",
                2,
                "unknown variant `gut`, expected one of `sage`, `sage-pool`",
            ),
            ("[run.optimizer]\nlr = 'fast'", 2, "invalid type: string \"fast\", expected f64"),
            ("[run]\nepochs = 2.5", 2, "invalid type: floating point `2.5`, expected u32"),
            ("[run]\nepochs = -1", 2, "invalid value: integer `-1`, expected u32"),
            ("[system]\nranks = 1979-05-27", 2, "invalid type"),
            ("[data]\nfanouts = [5, {}]", 2, "expected a string, a number or a list of these"),
            ("[data]\nfanouts = [5, 'x']", 2, "fanout"),
            ("[run.optimizer]\nnesterov = 1", 2, "invalid type: integer `1`, expected a boolean"),
            ("[system]\nthreads = 0", 2, "--threads 0: expected 1 to 1024"),
            ("[system]\npartition = '../up'", 2, "--partition"),
            ("[run]\nconfig = 'other.toml'", 2, "unknown field `config`"),
            ("[run]\nepochs =", 2, "quoted"),
            ("[run]\nepochs = 1\nepochs = 2", 3, "duplicate key"),
            // Values that are possible in general, but not here.
            ("[run]\nseed = 1\nepochs = 0", 3, "--epochs 0: expected 1 or more"),
            (
                "[run.optimizer]\nkind = 'adam'\nmomentum = 0.5",
                3,
                "--momentum is for --optimizer sgd",
            ),
            (
                "[run.schedule]\nkind = 'cosine'\nmin_lr = 2",
                3,
                "--min-lr 2: expected 0 to --lr 0.001",
            ),
            ("data.fanouts = '5,5'\nmodel.layers = 3", 2, "--layers 3 needs 3 fanouts"),
        ] {
            std::fs::write(path, text).unwrap();
            let told = complaint(&["--config", path]);
            assert!(
                told.starts_with(&format!("{path}:{line}: ")) && told.contains(words),
                "{text:?}: {told}"
            );
        }
        // The value of the command line is used, so the file's is not to blame.
        std::fs::write(path, "[run]\nepochs = 0").unwrap();
        let told = complaint(&["--config", path, "--epochs", "0"]);
        assert!(told.starts_with("--epochs 0"), "{told}");
    }

    #[test]
    fn options_that_contradict_each_other_are_named() {
        for (args, words) in [
            (&["--layers", "2"][..], "--layers 2"),
            (&["--parallelism", "single", "--ranks", "2"], "--parallelism single is one rank"),
            (&["--model", "gat", "--heads", "7"], "--heads 7"),
            (&["--dropout", "1"], "--dropout 1"),
            (&["--lr", "0"], "--lr 0"),
            (&["--lr=-1e-3"], "--lr -0.001: expected a positive number"),
            (
                &["--attention-dropout=-0.1"],
                "--attention-dropout -0.1: expected at least 0 and below 1",
            ),
            (&["--batch-size", "0"], "--batch-size 0"),
            (
                &["--task", "link", "--valid-edges", "0.6", "--test-edges", "0.5"],
                "together below 1",
            ),
        ] {
            let told = complaint(args);
            assert!(told.contains(words), "{told}");
        }
    }
}
