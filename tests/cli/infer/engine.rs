//! `mlserver infer --engine`, with scripts in place of the commands of engines: what they get, and what becomes of their ends. Real engines
//! are in `tests/engines`.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::{InferCommand, InferExit};
use crate::support::wait_until;

/// A command whose engine is a script, in the folder `bin` of its own folder.
fn with_engine(flags: &[&str], program: &str, script: &str) -> InferCommand {
    let command = InferCommand::new("").flags(flags);
    let bin = command.path("bin");
    fs::create_dir(&bin).unwrap();
    fs::write(bin.join(program), format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(bin.join(program), fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:/usr/bin:/bin", bin.display());
    let home = command.path("").to_str().unwrap().to_owned();
    command.env("PATH", &path).env("HOME", &home).env("TMPDIR", &home)
}

fn spark(flags: &[&str], script: &str) -> InferCommand {
    let common = ["--engine", "spark", "-m", "s3://models/churn", "-i", "s3a://lake/in/", "-o", "s3a://lake/out/"];
    with_engine(&[&common, flags].concat(), "spark-submit", script)
}

/// Writes a report where the last argument names it.
fn reporting(report: &Value) -> String {
    format!("for last; do :; done; echo a line of the log; echo '{report}' > \"${{last#--report=}}\"")
}

fn report(rows: u64, failed: u64) -> Value {
    json!({"rows": rows, "failed": failed, "resumed": 0, "seconds": 2.0, "prediction_seconds": 1.5, "error": null})
}

fn summary(exit: &InferExit) -> Value {
    serde_json::from_str(&exit.stdout).unwrap_or_else(|error| unreachable!("{error}: {exit:?}"))
}

#[test]
fn infer_engine_dry_run_prints_the_command() {
    let flags = [
        "--dry-run",
        "--keep=id,a b",
        "--partition-by=day",
        "--outputs=predict",
        "--columns=x,y",
        "--overwrite",
        "--engine-arg=--master=yarn",
        "--engine-arg=--num-executors=200",
    ];
    let exit = spark(&flags, "exit 9").env("SPARK_HOME", "/opt/spark").run();
    assert_eq!(exit.code, Some(0), "{exit:?}");
    let (command, arguments) = exit.stdout.split_once(" --model=").unwrap();
    let (program, package) = command.split_once(" --master=yarn --num-executors=200 --py-files ").unwrap();
    assert!(program.starts_with("MLSERVER_BIN=") && program.ends_with(" /opt/spark/bin/spark-submit"), "{program}");
    let (archive, application) = package.split_once(' ').unwrap();
    assert!(
        archive.ends_with("/mlserver.zip") && application.ends_with("/mlserver/_scoring/job_spark.py"),
        "{package}"
    );
    let expected = "s3://models/churn --format=parquet --output=s3a://lake/out/ --input=s3a://lake/in/ --outputs=predict \
                    --columns=x --columns=y --keep=id --keep='a b' --partition-by=day --overwrite\n";
    assert_eq!(arguments, expected);
}

#[test]
fn infer_engine_rejects_what_it_cannot_do() {
    let cases: [(&[&str], &str); 11] = [
        (&["--url", "h:1"], "cannot be used with '--url <URL>'"),
        (&["--workers", "3"], "cannot be used with '--workers <N>'"),
        (&["--embedded", "models"], "cannot be used with '--embedded <FOLDER>'"),
        (&["--overwrite", "--resume"], "'--overwrite' cannot be used with '--resume'"),
        (&["--input-format", "npy"], "--input-format: the input of an engine is a table, and not `npy`"),
        (
            &["-i", "rows.csv"],
            "`rows.csv` has another format than the first input, which is parquet: set --input-format",
        ),
        (&["-i", "-"], "--input-data-path: `-` has no effect with --engine"),
        (&["--keep", "a,,b"], "--keep: expected names of columns, separated by commas, but one is empty"),
        (&["--engine-arg=--deploy-mode", "--engine-arg=cluster"], "use --deploy-mode=client"),
        (&["--input-format", "catalog", "--resume"], "--resume: only files have names that the output keeps"),
        (&["--timeout", "3"], "cannot be used with '--timeout <SECONDS>'"),
    ];
    for (flags, message) in cases {
        let exit = spark(flags, "exit 9").run();
        assert_eq!(exit.code, Some(2), "{exit:?}");
        assert!(exit.stderr.contains(message), "{message}: {}", exit.stderr);
    }
    let without = InferCommand::new("").flags(&["-m", "m", "-i", "in.jsonl", "-o", "out.jsonl", "--keep", "id"]).run();
    assert_eq!(without.code, Some(2));
    assert!(without.stderr.contains("--engine <ENGINE>"), "{}", without.stderr);
    let orc =
        InferCommand::new("").flags(&["-m", "m", "-i", "in.orc", "-o", "out.jsonl", "--input-format", "orc"]).run();
    assert_eq!(orc.code, Some(2));
    assert!(orc.stderr.contains("`orc` and `catalog` are read by engines: set --engine"), "{}", orc.stderr);
    let table = ["--engine", "ray", "-m", "s3://m/c", "-i", "lake.events", "-o", "out/", "--engine-arg=--no-wait"];
    let ray = InferCommand::new("").flags(&table).run();
    assert_eq!(ray.code, Some(2));
    assert!(ray.stderr.contains("`lake.events` is the name of a table, and Ray has no catalog"), "{}", ray.stderr);
    assert!(ray.stderr.contains("--engine-arg: `--no-wait` is set by this command"), "{}", ray.stderr);
}

#[test]
fn infer_engine_exit_codes_are_those_of_infer() {
    let exit = spark(&["--summary", "json"], &reporting(&report(1000, 0))).run();
    assert_eq!(exit.code, Some(0), "{exit:?}");
    assert!(exit.stderr.contains("a line of the log"), "{}", exit.stderr);
    let found = summary(&exit);
    assert_eq!((&found["rows"], &found["answered"], &found["failed"]), (&json!(1000), &json!(1000), &json!(0)));
    assert_eq!((&found["rows_per_second"], &found["prediction_seconds"]), (&json!(500.0), &json!(1.5)));
    assert_eq!((&found["exit_code"], &found["output"]), (&json!(0), &json!("s3a://lake/out/")));

    let exit = spark(&["--summary", "json"], &reporting(&report(1000, 3))).run();
    assert_eq!(exit.code, Some(4), "{exit:?}");
    assert!(exit.stderr.contains("3 of 1000 rows failed; their predictions are null, and `mlserver_error`"));
    assert_eq!(summary(&exit)["answered"], 997);

    let mut failure = report(0, 0);
    failure["error"] = json!("the data lacks the column `age`");
    let exit = spark(&["--summary", "json"], &format!("{}; exit 1", reporting(&failure))).run();
    assert_eq!(exit.code, Some(1), "{exit:?}");
    assert_eq!(summary(&exit)["error"], "the data lacks the column `age`");

    let exit = spark(&[], "echo no cluster; exit 7").run();
    assert_eq!(exit.code, Some(1), "{exit:?}");
    let message = "`spark-submit` ended (exit status: 7) before the job reported what it did: see its output above";
    assert!(exit.stderr.contains(message) && exit.stderr.contains("no cluster"), "{}", exit.stderr);

    let exit = spark(&["--quiet"], &reporting(&report(5, 0))).run();
    assert_eq!((exit.code, exit.stderr.as_str(), exit.stdout.as_str()), (Some(0), "", ""));
}

#[test]
fn infer_engine_names_a_missing_command() {
    let command = spark(&[], "").env("SPARK_HOME", "/nowhere");
    let exit = command.run();
    assert_eq!(exit.code, Some(1), "{exit:?}");
    assert!(exit.stderr.contains("cannot run `/nowhere/bin/spark-submit`: install Spark"), "{}", exit.stderr);
    let left: Vec<_> = fs::read_dir(command.path("")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().starts_with("mlserver-infer-")), "{left:?}");
}

#[test]
fn infer_engine_signal_ends_the_job() {
    let command = spark(&[], "sleep 60 & echo $! > sleeper; touch begun; wait");
    let child = command.spawn();
    wait_until("the job has not begun", || command.path("begun").exists());
    kill_process(Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap(), Signal::TERM).unwrap();
    let exit = command.ended(child);
    assert_eq!(exit.code, Some(143), "{exit:?}");
    let sleeper: i32 = fs::read_to_string(command.path("sleeper")).unwrap().trim().parse().unwrap();
    let state = fs::read_to_string(format!("/proc/{sleeper}/stat")).unwrap_or_default();
    assert!(state.is_empty() || state.contains(") Z "), "{state}");
}

#[test]
fn infer_engine_ray_gets_the_package_and_reports_in_its_log() {
    let flags =
        ["--engine", "ray", "-m", "models/churn", "-i", "in/", "-o", "out/", "--engine-arg=--address=http://h:1"];
    let line = format!("mlserver-report: {}", report(20, 0));
    let script =
        format!("for word; do echo \"$word\" >> words; done; echo begin; echo '{line}'; ls -R \"$TMPDIR\" > files");
    let command = with_engine(&flags, "ray", &script);
    fs::create_dir_all(command.path("models/churn")).unwrap();
    let exit = command.run();
    assert_eq!(exit.code, Some(0), "{exit:?}");
    assert!(exit.stderr.contains("begin") && exit.stderr.contains("20 rows, 0 failed"), "{}", exit.stderr);
    assert!(!exit.stderr.contains("mlserver-report"), "{}", exit.stderr);
    let words = fs::read_to_string(command.path("words")).unwrap();
    let words: Vec<_> = words.lines().collect();
    assert_eq!(words[..3], ["job", "submit", "--address=http://h:1"]);
    let place = words.iter().position(|word| *word == "--runtime-env-json").unwrap();
    let environment: Value = serde_json::from_str(words[place + 1]).unwrap();
    assert!(environment["py_modules"][1].as_str().unwrap().ends_with("/mlserver_shipped"), "{environment}");
    let rest = ["--", "python", "-m", "mlserver._scoring.job_ray", "--shipped-model=churn"];
    assert_eq!(words[place + 2..place + 7], rest);
    let files = fs::read_to_string(command.path("files")).unwrap();
    assert!(files.contains("mlserver_shipped/model") && files.contains("mlserver.gz"), "{files}");
}
