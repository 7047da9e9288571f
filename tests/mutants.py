#!/usr/bin/env python3
"""Plants faults in the product, one at a time, and checks that the tests named for each fault see it.

    python3 tests/mutants.py                 every fault with the tests that are known to see it
    python3 tests/mutants.py norm shuffle    the faults whose names contain one of these words
    python3 tests/mutants.py --survey norm   with all tests of the crate: prints every test that fails
    python3 tests/mutants.py --list          the names, without running anything; fails where a fault's text is not in its file once

A fault is a piece of source text that occurs once, and its replacement. It is seen if the tests are built and at least one fails. The
source is restored after each fault, also after an interrupt. Run it before and after tests are changed or removed: a fault that was
seen must still be seen. With two cores it takes about 40 minutes.
"""

import argparse
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# A test that waits for ever sees the fault, too.
TIMEOUT_S = 600

# name: (crate, tests to run, file, text, replacement)
FAULTS = {
    # Sampling.
    "floyd draws from one candidate too few": (
        "kernels", "sample::", "kernels/src/sample/uniform.rs",
        "lowest[lane] = u64::from(lanes[lane].n).wrapping_sub(count as u64);",
        "lowest[lane] = u64::from(lanes[lane].n).wrapping_sub(count as u64 + 1);"),
    "fanout of a full vertex is off by one": (
        "kernels", "sample::", "kernels/src/sample/uniform.rs",
        "Fanout::Take(fanout) if fanout < candidates => fanout,",
        "Fanout::Take(fanout) if fanout < candidates => fanout - 1,"),
    "excluded edges are drawn": (
        "kernels", "sample::", "kernels/src/sample/excluded.rs",
        "*rank += skipped as u32;", "*rank += 0 * skipped as u32;"),
    "the GPU draws from one candidate too few": (
        "kernels", "sample::", "kernels/src/sample/cuda.cu",
        "pick = below(word, lowest + lane + 1);", "pick = below(word, lowest + lane);"),
    "every epoch shuffles alike": (
        "kernels", "schedule::", "kernels/src/schedule.rs",
        "StreamKey { epoch, ..StreamKey::new(seed, Stream::Shuffle) }",
        "StreamKey { epoch: 0 * epoch, ..StreamKey::new(seed, Stream::Shuffle) }"),
    "layers share their random numbers": (
        "kernels", "schedule::", "kernels/src/schedule.rs",
        "self.key(Stream::Sample, depth)", "self.key(Stream::Sample, 0 * depth)"),
    "a page of random words repeats": (
        "kernels", "philox:: sample::", "kernels/src/sample/weighted.rs",
        "self.key.page(self.item, (block >> 16) as u16)", "self.key.page(self.item, (block >> 17) as u16)"),
    "negatives follow the mini-batch, not the edge": (
        "trainer", "tests::two_kinds", "sample/src/links/batch.rs",
        "let mut draws = Draws::new(&key, edge);", "let mut draws = Draws::new(&key, edge % 2);"),
    "negatives miss the first of their kind": (
        "trainer", "tests::two_kinds tests::links", "sample/src/links/batch.rs",
        "others.start + draws.below(others.len() as u32)", "others.start + 1 + draws.below(others.len() as u32 - 1)"),
    "reverses of the edges to predict may be drawn": (
        "trainer", "tests::links", "sample/src/links/split.rs",
        "back.into_iter().map(move |row| (row, target))", "back.into_iter().take(0).map(move |row| (row, target))"),

    # Rows between ranks.
    "rows that others asked for are swapped": (
        "sample", "", "sample/src/shuffle.rs",
        "let asked = rows.split_off(ours.len());", "let mut asked = rows.split_off(ours.len()); asked.reverse();"),
    "gradients are sent back to the wrong counts": (
        "trainer", "tests::exchange tests::equivalence", "trainer/src/exchange/mod.rs",
        "Ok(scatter_add_f32(own, dim, asked.on_host()?, received.as_slice())?)",
        "let _ = (own, received); Ok(())"),
    "gradients are not summed over ranks": (
        "trainer", "tests::equivalence", "trainer/src/optimizer/mod.rs",
        "comm.all_reduce_sum_f32(&mut values)?;", "let _ = comm;"),
    "a rank passes a collective before the others": (
        "kernels", "comm::", "kernels/src/comm/threads.rs",
        "if gate.arrived.len() == self.seat.size {", "if gate.arrived.len() + 1 >= self.seat.size {"),
    "messages of two rounds share a place": (
        "kernels", "comm::", "kernels/src/comm/threads.rs",
        "self.round.load(Ordering::Relaxed) % 2;", "self.round.load(Ordering::Relaxed) % 1;"),
    "a vertex is split to the rank after its owner": (
        "kernels", "split::", "kernels/src/split/cpu.rs",
        ".map(|&v| owner(v)).collect();", ".map(|&v| (owner(v) + 1) % ranks).collect();"),
    "counts of classes are not summed over ranks": (
        "trainer", "tests::regression tests::shards", "trainer/src/metric/counts.rs",
        ".try_for_each(|counts| comm.all_reduce_sum_u64(counts))?;", ".try_for_each(|_| Ok::<(), CommError>(()))?;"),

    # Kernels and their gradients.
    "dropout keeps its scale out of the gradient": (
        "kernels", "activation::", "kernels/src/activation/cpu.rs",
        "let keep = self.dropout.map_or(1.0, |(_, rate, _)| 1.0 / (1.0 - rate));",
        "let keep = self.dropout.map_or(1.0, |(_, rate, _)| 1.0 - 0.0 * rate);"),
    "a dropout mask is forgotten in the gradient": (
        "kernels", "activation::", "kernels/src/activation/cpu.rs",
        "mask.multiply(ids[i], out);", "let _ = (mask, ids, i);"),
    "dropout drops one value too many": (
        "kernels", "dropout::", "kernels/src/dropout/cpu.rs",
        "keep & u32::from(bits >= self.threshold).wrapping_neg()", "keep & u32::from(bits > self.threshold).wrapping_neg()"),
    "the derivative of ELU has the wrong sign": (
        "kernels", "activation::", "kernels/src/activation/cpu.rs", "value / keep + 1.0, 1.0)", "value / keep - 1.0, 1.0)"),
    "the gradient of a layer norm forgets the mean": (
        "kernels", "norm::", "kernels/src/norm/rows.rs",
        "inverse * (*out - of_mean - (value - mean) * inverse * of_spread)",
        "inverse * (*out - 0.0 * of_mean - (value - mean) * inverse * of_spread)"),
    "means divide by one edge too many": (
        "kernels", "spmm::", "kernels/src/spmm/cpu.rs",
        "Reduce::Mean => 1.0 / self.edges.of(target).len().max(1) as f32,",
        "Reduce::Mean => 1.0 / (self.edges.of(target).len() + 1) as f32,"),
    "gradients of weights are those of the neighbour edge": (
        "kernels", "spmm::", "kernels/src/spmm/cpu.rs",
        "*out = scale * dot(row(edges.sources()[edge]), gradient);",
        "*out = scale * dot(row(edges.sources()[edge ^ (edge & 1)]), gradient);"),
    "the last of equals is the maximum": (
        "kernels", "spmm::", "kernels/src/spmm/max.rs",
        "let wins = value > *best || value.is_nan();", "let wins = value >= *best || value.is_nan();"),
    "the GPU sums without the scale of quantised rows": (
        "kernels", "spmm:: gather::", "kernels/src/spmm/sum.cuh",
        "term.scale = table.scales[at];", "term.scale = 1.0f;"),
    "edges by source are those of the next edge": (
        "kernels", "edges:: spmm::", "kernels/src/edges.rs",
        "(target as u32, edge as u32);", "(target as u32, edge as u32 ^ 1);"),
    "a cached row is that of the next slot": (
        "kernels", "gather::", "kernels/src/gather/cached.rs",
        "*place = (number << shift | slot) as u32;", "*place = (number << shift | (slot ^ 1)) as u32;"),

    # Training.
    "Adam counts from one step too early": (
        "trainer", "tests::optimizer tests::schedule optimizer::", "trainer/src/optimizer/mod.rs",
        "step = Tensor::f_full([], made as f64,", "step = Tensor::f_full([], made as f64 + 1.0,"),
    "AdamW adds its decay to the gradient": (
        "trainer", "tests::optimizer optimizer::", "trainer/src/optimizer/mod.rs",
        "decoupled: kind == OptimizerKind::AdamW,", "decoupled: false,"),
    "a gradient goes through ReLU and dropout twice": (
        "trainer", "operator:: tests::device tests::equivalence", "trainer/src/operator/finish.rs",
        "self.taken.store(true, Ordering::Relaxed);", ""),
    "the warm-up is one step late": (
        "trainer", "tests::optimizers", "trainer/src/optimizer/rate.rs",
        "return self.base * (steps + 1) as f64 / warmup as f64;", "return self.base * steps as f64 / warmup as f64;"),
    "patience is one evaluation longer": (
        "trainer", "report:: tests::runs", "trainer/src/report/stopping.rs",
        "if others >= patience {", "if others > patience {"),
    "a checkpoint forgets the steps of the optimizer": (
        "trainer", "tests::runs", "trainer/src/report/checkpoint.rs",
        "steps: optimizer.steps,", "steps: optimizer.steps.saturating_sub(1),"),
    "stale updates are lost at the end of an epoch": (
        "trainer", "tests::optimizers tests::cooperative tests::runs", "trainer/src/epoch.rs",
        "optimizer.catch_up(model.parameters())?;", ""),
    "residuals bring no gradient": (
        "trainer", "tests::gradients tests::layers", "trainer/src/step/pass.rs",
        "of_pre_activation = of_residual;", "of_pre_activation = Tensor::new(); drop(of_residual);"),
    "macro F1 counts classes that never occur": (
        "trainer", "metric:: tests::metrics", "trainer/src/metric/counts.rs",
        "true => self.predicted[c] + self.actual[c] > 0,", "true => true,"),
    "ties count as lost pairs in ROC-AUC": (
        "trainer", "metric::", "trainer/src/metric/roc_auc.rs",
        "twice_ranks += positives * (2 * below + count + 1);", "twice_ranks += positives * (2 * below + 2);"),
    "the test split is scored as the valid split": (
        "trainer", "tests::evaluation", "trainer/src/evaluate/mod.rs",
        "(Split::Test, job.test.as_deref())", "(Split::Test, job.valid.as_deref())"),
    "layer-wise inference skips a vertex between chunks": (
        "trainer", "tests::infer", "trainer/src/infer/chunks.rs",
        "(left.number, left.start) = (number + 1, range.end);", "(left.number, left.start) = (number + 1, range.end + 1);"),

    # Files.
    "a document with a flipped bit is accepted": (
        "store", "document::", "store/src/document.rs",
        "if checksum.to_string() != head.checksum {", "if checksum.to_string().len() != head.checksum.len() {"),
    "an artifact becomes visible without its contents on disk": (
        "store", "staging::", "store/src/staging/together.rs",
        "stagings.iter().try_for_each(|staging| sync_tree(&staging.file()))?;", ""),
    "a document of another version is accepted": (
        "store", "", "store/src/document.rs",
        "if head.format != T::FORMAT || head.format_version != T::VERSION {", "if head.format != T::FORMAT {"),

    # Conversion.
    "reverses are not added": (
        "preprocess", "csc::", "preprocess/src/csc/chunk.rs",
        "                if reverse {\n                    put(v, u, edge);", "                if reverse {\n                    put(u, v, edge);"),
    "values of duplicates are not merged": (
        "preprocess", "csc::", "preprocess/src/csc/bucket.rs",
        "self.merge.add(&mut lists.values[(kept - 1) * width..kept * width], value);", "let _ = value;"),
    "self-loops are kept in spite of the option": (
        "preprocess", "csc::", "preprocess/src/csc/chunk.rs",
        "!self.options.drop_self_loops);", "!self.options.drop_self_loops | true);"),
}


def run(crate, filters, survey):
    """Builds and runs the tests; returns whether they were built, whether one failed, and their names."""
    build = ["cargo", "test", "--quiet", "--no-run", "--package", f"gsplit-{crate}", "--lib"]
    built = subprocess.run(build, cwd=ROOT, capture_output=True, text=True)
    if built.returncode:
        return False, False, built.stderr.strip().splitlines()[:12]
    words = [] if survey else filters.split()
    command = ["cargo", "test", "--package", f"gsplit-{crate}", "--lib", "--no-fail-fast", "--", *words]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True) as tests:
        try:
            output = tests.communicate(timeout=TIMEOUT_S)[0]
        except subprocess.TimeoutExpired:
            os.killpg(tests.pid, signal.SIGKILL)
            tests.communicate()
            return True, True, ["(a test does not end)"]
    ran = re.search(r"^test result: \w+\. (\d+) passed; (\d+) failed", output, re.M)
    if ran and ran.group(1) == ran.group(2) == "0":
        return True, False, ["(no test has such a name)"]
    failed = sorted(set(re.findall(r"^test (\S+) \.\.\. FAILED", output, re.M)))
    return True, bool(failed) or tests.returncode != 0, failed or ["(the tests crashed)"] * (tests.returncode != 0)


def plant(name, fault, survey):
    crate, filters, file, text, replacement = fault
    path = ROOT / file
    source = path.read_text()
    if source.count(text) != 1:
        return "stale", [f"{file}: the text occurs {source.count(text)} times, not once"]
    try:
        path.write_text(source.replace(text, replacement))
        built, failed, names = run(crate, filters, survey)
    finally:
        path.write_text(source)
    if not built:
        return "stale", names
    return ("seen" if failed else "NOT SEEN"), names


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*", help="run the faults whose names contain one of these words")
    parser.add_argument("--survey", action="store_true", help="run all tests of the crate and print every one that fails")
    parser.add_argument("--list", action="store_true", help="print the names of the faults")
    options = parser.parse_args()
    chosen = {name: fault for name, fault in FAULTS.items() if not options.words or any(word in name for word in options.words)}
    if options.list:
        print("\n".join(chosen))
        lost = [name for name, (_, _, file, text, _) in chosen.items() if (ROOT / file).read_text().count(text) != 1]
        return f"error: the text of these faults is not in its file once: {', '.join(lost)}" if lost else 0
    if subprocess.run(["git", "diff", "--quiet"], cwd=ROOT).returncode:
        sys.exit("error: the working tree has changes: commit them first, since faults are planted in it")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    unseen = 0
    for name, fault in chosen.items():
        begun = time.monotonic()
        verdict, names = plant(name, fault, options.survey)
        unseen += verdict != "seen"
        shown = ", ".join(names[:4]) + (f", {len(names) - 4} more" if len(names) > 4 and not options.survey else "")
        print(f"{verdict:8} {time.monotonic() - begun:5.0f} s  {name}: {', '.join(names) if options.survey else shown}", flush=True)
    print(f"{len(chosen) - unseen} of {len(chosen)} faults are seen")
    return 1 if unseen else 0


if __name__ == "__main__":
    sys.exit(main())
