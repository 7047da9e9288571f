//! `gsplit schema`.

use std::path::PathBuf;

use gsplit_preprocess::convert::{ConvertOptions, Format, decide};
use serde_json::json;

use crate::ui::Ui;

/// Print the decisions of convert on the columns and cells of an input
///
/// The input is opened as gsplit convert does it, with the same questions and notes, and nothing is
/// written. The output is a TOML file for convert --schema: every decision is a key, and columns
/// that are not used are comments with the reason. Edit it, and convert with it. Options are those
/// of gsplit convert.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    gsplit schema payments.csv --nodes customers.csv --label-column churned > payments.toml\n  \
    gsplit convert payments.csv --nodes customers.csv --schema payments.toml --out payments\n  \
    gsplit schema payments.csv --schema decimal=comma --schema date-order=dmy")]
pub struct Args {
    /// The raw graph: a file, or a folder as it was downloaded
    #[arg(value_name = "INPUT")]
    input: PathBuf,
    #[command(flatten)]
    options: ConvertOptions,
}

/// Runs the subcommand.
pub fn run(args: Args, ui: &Ui) -> anyhow::Result<()> {
    let (format, decided) = decide(&args.input, &args.options, ui)?;
    ui.json(&json!({
        "format": format.to_string(), "decided": decided.schema.to_map(),
        "left_out": decided.left_out,
    }));
    let name = args.input.file_name().unwrap_or(args.input.as_os_str());
    let use_of = match format {
        Format::Tables => "which describes its tables itself",
        _ => "for gsplit convert --schema",
    };
    ui.say(format_args!("# {} ({format}), {use_of}", name.display()));
    decided.to_toml().lines().for_each(|line| ui.say(line));
    Ok(())
}
