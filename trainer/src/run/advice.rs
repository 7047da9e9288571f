//! Advice on an error that ended a run: options to change, and the checkpoints left.
//!
//! The place of the error knows neither, so advice is added at the end of the run. It never names
//! an option to add that was given, or one to leave out that was not.

use std::path::Path;

use crate::report::checkpoint::newest;
use crate::{Config, Error};

impl Error {
    /// Adds advice to this error if it depends on the options of the run.
    pub(crate) fn advised(self, config: &Config) -> Self {
        let kept = config.run.checkpoint.as_deref().and_then(newest).is_some();
        let lower = format!("lower --lr, now {}", config.run.optimizer.lr);
        let advice = match &self {
            Self::Interrupted(_) => {
                return Self::Interrupted(left_behind(
                    config.run.checkpoint.as_deref(),
                    config.run.resume,
                ));
            }
            Self::Diverged { .. } if config.run.optimizer.clip_norm.is_some() => {
                format!("{lower}, or check the features")
            }
            Self::Diverged { .. } => format!("{lower}, set --clip-norm or check the features"),
            error if error.gpu_memory().is_some() => less_memory(config),
            _ => return self,
        };
        let advice = if kept { format!("{advice}; the last checkpoint is kept") } else { advice };
        Self::Advised { error: Box::new(self), advice }
    }
}

/// Describes the checkpoints of an interrupted run in `folder` and how to continue; `resume` is
/// true if it was resumed itself.
pub fn left_behind(folder: Option<&Path>, resume: bool) -> String {
    let Some(folder) = folder else {
        return "nothing is kept, a run with --checkpoint DIR can be resumed".into();
    };
    match newest(folder) {
        None => "no epoch was finished, so nothing is kept".into(),
        Some(_) => {
            let again = if resume { "the same command" } else { "the same command with --resume" };
            format!(
                "the last checkpoint in {} is kept; {again} goes on from there",
                folder.display()
            )
        }
    }
}

/// Options that reduce the memory a run needs on a GPU.
fn less_memory(config: &Config) -> String {
    let again =
        if config.model.checkpoint_activations { "" } else { ", or pass --checkpoint-activations" };
    format!("lower --batch-size, --fanouts, --hidden or --cache{again}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::quick_config;
    use crate::{ModelKind, Parallelism};

    #[test]
    fn advice_names_what_the_run_has_and_what_it_has_not() {
        let mut config = quick_config(ModelKind::Sage, Parallelism::Single, 1);
        let told = |error: Error, config: &Config| error.advised(config).to_string();
        let full = || Error::OutOfMemory {
            rank: Some(1),
            what: "GPU 0 is out of memory, 2 GiB asked for".into(),
        };
        let diverged =
            || Error::Diverged { what: "gradient's norm", value: f64::NAN, epoch: 2, step: 3 };
        let expected = "rank 1: GPU 0 is out of memory, 2 GiB asked for: lower --batch-size, --fanouts, --hidden or --cache, or pass \
                        --checkpoint-activations";
        assert_eq!(told(full(), &config), expected);
        let line = told(diverged(), &config);
        let expected = "the gradient's norm is NaN at epoch 2, step 3: lower --lr, now";
        assert!(
            line.starts_with(expected)
                && line.contains("set --clip-norm")
                && !line.contains("kept"),
            "{line}"
        );
        let stopped = || Error::Interrupted(String::new());
        assert!(told(stopped(), &config).contains("a run with --checkpoint DIR can be resumed"));

        let folder = tempfile::tempdir().unwrap();
        config.run.checkpoint = Some(folder.path().to_path_buf());
        assert!(told(stopped(), &config).contains("nothing is kept"));
        assert!(!told(diverged(), &config).contains("checkpoint"));
        std::fs::create_dir(folder.path().join("epoch-00001")).unwrap();
        assert!(
            told(stopped(), &config)
                .ends_with("is kept; the same command with --resume goes on from there")
        );
        assert!(told(diverged(), &config).ends_with("; the last checkpoint is kept"));
        config.run.resume = true;
        config.run.optimizer.clip_norm = Some(1.0);
        config.model.checkpoint_activations = true;
        assert!(!told(stopped(), &config).contains("--resume"));
        assert!(!told(diverged(), &config).contains("--clip-norm"));
        let line = told(full(), &config);
        assert!(!line.contains("--checkpoint-activations"), "{line}");
    }
}
