//! Tables as input and output: CSV, NumPy and Parquet.

use std::fs;
#[cfg(feature = "parquet")]
use std::time::Duration;

use serde_json::{Value, json};

#[cfg(feature = "parquet")]
use super::parquet_rows;
use super::{IRISES, InferCommand, values};
use crate::support::scripted::{Received, Reply, ScriptedServer};
use crate::support::{Folder, IRIS, TestServer};
#[cfg(feature = "parquet")]
use crate::support::{pause, wait_until};

/// Predicts the irises of a file with that name.
fn of_irises(server: &TestServer, name: &str, content: impl AsRef<[u8]>) -> InferCommand {
    let infer =
        InferCommand::new("").flags(&["-u", &server.http.to_string(), "-m", IRIS, "-i", name, "-o", "out.jsonl"]);
    fs::write(infer.path(name), content).unwrap();
    infer
}

fn csv(rows: usize) -> String {
    let rows = (0..rows).map(|row| {
        let [a, b, c, d] = IRISES[row % 3].0;
        format!("{a},{b},{c},{d}\n")
    });
    "sepal length,sepal width,petal length,petal width\n".to_owned() + &rows.collect::<String>()
}

fn classes(rows: usize) -> Vec<Option<i64>> {
    (0..rows).map(|row| Some(IRISES[row % 3].1)).collect()
}

/// A single-precision array, as `numpy.save` writes it.
fn npy(rows: usize) -> Vec<u8> {
    let header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, 4), }}\n");
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    file.extend(u16::try_from(header.len()).unwrap().to_le_bytes());
    file.extend(header.as_bytes());
    #[expect(clippy::cast_possible_truncation, reason = "the numbers have one decimal")]
    let numbers = (0..rows).flat_map(|row| IRISES[row % 3].0).flat_map(|value| (value as f32).to_le_bytes());
    file.extend(numbers);
    file
}

#[test]
fn infer_tables_every_format_gives_the_same_answers() {
    let server = TestServer::quickstart();
    let objects = (0..250).map(|row| {
        let [a, b, c, d] = IRISES[row % 3].0;
        json!({"sepal length": a, "sepal width": b, "petal length": c, "petal width": d}).to_string() + "\n"
    });
    let objects: String = objects.collect();
    for (name, content) in [
        ("in.csv", csv(250).into_bytes()),
        ("in.tsv", csv(250).replace(',', "\t").into_bytes()),
        ("in.ndjson", objects.into_bytes()),
        ("in.npy", npy(250)),
        #[cfg(feature = "parquet")]
        ("in.parquet", parquet(250, ::parquet::basic::Compression::SNAPPY)),
        #[cfg(feature = "parquet")]
        ("in.parquet", parquet(250, ::parquet::basic::Compression::ZSTD(::parquet::basic::ZstdLevel::default()))),
        #[cfg(feature = "parquet")]
        ("in.parquet", parquet(250, ::parquet::basic::Compression::LZ4_RAW)),
        #[cfg(feature = "parquet")]
        ("in.pq", parquet(250, ::parquet::basic::Compression::LZ4)),
    ] {
        let ran = of_irises(&server, name, content).flags(&["--summary", "json"]).run();
        let lines = ran.lines(0);
        assert_eq!(values(&lines), classes(250), "{name}");
        let summary: Value = serde_json::from_str(&ran.stdout).unwrap();
        assert_eq!(summary["requests"], 3, "{name}: a hundred rows each");
    }
    let piped =
        InferCommand::new("").flags(&["-u", &server.http.to_string(), "-m", IRIS, "-i", "-", "-o", "out.jsonl"]);
    let piped = piped.flags(&["--input-format", "csv", "-s", "7"]);
    assert_eq!(values(&piped.run_with_stdin(csv(20).as_bytes()).lines(0)), classes(20));
}

#[test]
fn infer_tables_columns_have_types_and_missing_values() {
    let server = ScriptedServer::serve(|request| {
        let output = json!({"name": "y", "shape": [3, 1], "datatype": "BYTES", "data": ["a", "b,", "c"]});
        assert_eq!(request.header("content-type"), "application/json");
        Reply::Answer(200, "", json!({"model_name": "m", "id": "", "outputs": [output]}).to_string())
    });
    let input = "count,price,ok,name,code\n1,,true,\"a, b\",007\n2,2.5,false,é,008\n-3,NA,true,,009\n";
    let address = server.address.to_string();
    let infer = InferCommand::new("").flags(&["-u", &address, "-m", "m", "-i", "in.csv", "-o", "out.jsonl"]);
    let infer = infer.flags(&["--column-type", "code=BYTES", "--column-type", "price=FP32"]);
    fs::write(infer.path("in.csv"), input).unwrap();
    assert_eq!(infer.run().lines(0).len(), 3);
    let sent = server.received()[0].json();
    let column = |name: &str, datatype: &str, data: Value| json!({"name": name, "shape": [3, 1], "datatype": datatype, "data": data});
    let mut text =
        [column("name", "BYTES", json!(["a, b", "é", ""])), column("code", "BYTES", json!(["007", "008", "009"]))];
    for column in &mut text {
        column["parameters"] = json!({"content_type": "str"});
    }
    let [name, code] = text;
    let expected = json!([
        column("count", "INT64", json!([1, 2, -3])),
        column("price", "FP32", json!(["NaN", 2.5, "NaN"])),
        column("ok", "BOOL", json!([true, false, true])),
        name,
        code
    ]);
    assert_eq!(
        (&sent["inputs"], &sent["parameters"]),
        (&expected, &json!({"content_type": "pd", "named_columns": true}))
    );
}

#[test]
fn infer_tables_bad_row_fails_alone() {
    let server = TestServer::quickstart();
    let mut text = csv(2000);
    text.push_str("1,2,3\n5.1,3.5,1.4,much\n5.1,3.5,1.4,0.2\n");
    let ran = of_irises(&server, "in.csv", text).run();
    let lines = ran.lines(4);
    assert_eq!(lines.len(), 2003);
    let message = |row: usize| lines[row]["error"]["msg"].as_str().unwrap();
    assert_eq!(message(2000), "the row has 3 values, but the header line has 4");
    let expected = "column `petal width`: `much` is not a valid FP64; set its datatype with `--column-type`";
    assert_eq!(message(2001), expected);
    assert_eq!(lines[2002]["outputs"][0]["data"], json!([0]));
}

#[test]
fn infer_tables_wrong_file_format_is_reported() {
    let server = ScriptedServer::serve(Received::echo);
    let address = server.address.to_string();
    for (name, content, flags, code, message) in [
        ("in.npy", "PK", &[] as &[&str], 1, "failed to fill whole buffer"),
        ("in.npy", "PK000000000000", &[], 1, "it was not written by `numpy.save`"),
        ("in.csv", "a\n1\n", &["--column-type", "b=FP32"], 1, "no column `b` (from --column-type); the columns are a"),
        ("in.csv", "a\n1\n", &["--column-type", "a=FLOAT"], 2, "--column-type: `a=FLOAT`: expected BOOL"),
        (
            "in.jsonl",
            "",
            &["--column-type", "a=FP32"],
            2,
            "--column-type applies only to the input formats csv, tsv and rows",
        ),
        ("in.csv", "a,b,a\n1,2,3\n", &[], 1, "there are two columns `a`: rename or remove one of them"),
        ("-", "", &["--input-format", "parquet"], 1, "cannot read Parquet from standard input: name a file"),
        #[cfg(feature = "parquet")]
        ("in.parquet", "PAR1", &[], 1, "cannot read `in.parquet` after row 0"),
    ] {
        let infer =
            InferCommand::new("").flags(&["-u", &address, "-m", "m", "-i", name, "-o", "out.jsonl"]).flags(flags);
        if name != "-" {
            fs::write(infer.path(name), content).unwrap();
        }
        let ran = infer.run();
        assert_eq!(ran.code, Some(code), "{name}: {}", ran.stderr);
        assert!(ran.stderr.contains(message), "{name}: {}", ran.stderr);
    }
}

#[test]
fn infer_tables_values_never_change_silently() {
    let server = ScriptedServer::serve(Received::echo);
    let address = server.address.to_string();
    let ask = |name: &str, content: &str, flags: &[&str]| {
        let infer = InferCommand::new("").flags(&["-u", &address, "-m", "m", "-i", name, "-o", "out.jsonl", "-s", "1"]);
        fs::write(infer.path(name), content).unwrap();
        let ran = infer.flags(flags).run();
        let lines: Vec<Value> = ran.output.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let shown = lines.iter().map(|line| match line["error"]["msg"].as_str() {
            None => format!("{} {}", line["outputs"][0]["datatype"].as_str().unwrap(), line["outputs"][0]["data"][0]),
            Some(message) => message.split("; ").next().unwrap().to_owned(),
        });
        shown.collect::<Vec<_>>()
    };
    let digits = "column `x`: `9007199254740993` would lose digits as FP64, the column's inferred datatype";
    assert_eq!(ask("in.csv", "x,y\n1.5,1\n1e400,1\n", &[])[1], "column `x`: `1e400` is out of the range of FP64");
    assert_eq!(
        ask("in.ndjson", "{\"x\":1.5}\n{\"x\":1e400}\n", &[])[1],
        "column `x`: `1e400` is out of the range of FP64"
    );
    let large = ask("in.csv", "x\n1\n1e39\n", &["--column-type", "x=FP32"]);
    assert_eq!(large[1], "column `x`: `1e39` is out of the range of FP32");
    assert_eq!(ask("in.csv", "x,y\n9007199254740993,1\n,2\n", &[])[0], digits);
    assert_eq!(ask("in.ndjson", "{\"x\":9007199254740993}\n{\"x\":null}\n", &[])[0], digits);
    let unsigned = "UINT64 18446744073709551615";
    assert_eq!(ask("in.csv", "x\n18446744073709551615\n", &[])[0], unsigned);
    assert_eq!(ask("in.csv", "x\n18446744073709551615\n", &["--column-type", "x=UINT64"])[0], unsigned);
    assert_eq!(ask("in.ndjson", "\u{feff}{\"x\":18446744073709551615}\n", &[])[0], unsigned);
    let marked = ["--column-type", "x=UINT64"];
    assert_eq!(
        ask("in.csv", "\u{feff}x\n18446744073709551615\n", &marked)[0],
        unsigned,
        "the mark is no part of a name"
    );
    assert_eq!(ask("in.ndjson", "{\"x\":1}\n{\"x\":1,\"x\":2}\n", &[])[1], "the key `x` is there twice");
}

#[test]
fn infer_tables_complete_columns_cannot_be_extended() {
    let server = ScriptedServer::serve(Received::echo);
    let address = server.address.to_string();
    let names = ["out.csv", "out.tsv"].into_iter().chain(cfg!(feature = "parquet").then_some("out.parquet"));
    for name in names {
        let infer = InferCommand::new(super::numbers(2));
        let infer = infer.flags(&["-u", &address, "-m", "m", "-i", "in.jsonl", "-o", name, "--resume"]);
        assert_eq!(infer.run().code, Some(0));
        let complete = fs::read(infer.path(name)).unwrap();
        let ran = infer.run();
        assert!(ran.code == Some(0) && ran.stderr.contains("nothing to do: all 2 rows"), "{}", ran.stderr);
        for (input, message) in [
            (super::numbers(3), "has answers to the first 2 rows, but the input has more"),
            (super::numbers(1), "`in.jsonl` has 1 rows, but 2 were answered already"),
            (
                super::numbers(2).replace("id-0", "other"),
                "row 0 of `in.jsonl` has the id `other`, but was answered with the id `id-0`",
            ),
        ] {
            fs::write(infer.path("in.jsonl"), input).unwrap();
            let ran = infer.run();
            assert_eq!(ran.code, Some(1), "{}", ran.stderr);
            assert!(ran.stderr.contains(message), "{}", ran.stderr);
        }
        assert_eq!(fs::read(infer.path(name)).unwrap(), complete);
    }
}

#[test]
fn infer_tables_outputs_become_columns() {
    let server = TestServer::quickstart();
    let infer =
        InferCommand::new("").flags(&["-u", &server.http.to_string(), "-m", IRIS, "-i", "in.csv", "-o", "out.csv"]);
    fs::write(infer.path("in.csv"), csv(4) + "x\n").unwrap();
    let ran = infer.run();
    assert_eq!(ran.code, Some(4), "{}", ran.stderr);
    let written = fs::read_to_string(infer.path("out.csv")).unwrap();
    let expected = "batch_index,id,predict,error\n0,,0,\n1,,2,\n2,,1,\n3,,0,\n\
                    4,,,\"the row has 1 values, but the header line has 4\"\n";
    assert_eq!(written, expected);
    assert!(!infer.path("out.csv.partial").exists() && !infer.path("out.csv.columns").exists());

    // An interrupted run leaves JSON lines, whatever the output format.
    fs::remove_file(infer.path("out.csv")).unwrap();
    let line = |index: u64| json!({"model_name": "m", "id": "", "parameters": {"batch_index": index}, "outputs": [{"name": "predict", "shape": [1, 1], "datatype": "INT64", "data": [9]}]});
    fs::write(infer.path("out.csv.partial"), format!("{}\n{}\n", line(0), line(1))).unwrap();
    let infer = infer.flags(&["--resume"]);
    assert_eq!(infer.run().code, Some(4));
    assert_eq!(fs::read_to_string(infer.path("out.csv")).unwrap(), expected.replace("0,,0,\n1,,2,", "0,,9,\n1,,9,"));
    let ran = infer.run();
    assert!(ran.code == Some(4) && ran.stderr.contains("all 5 rows have been answered already"), "{}", ran.stderr);
}

#[test]
fn infer_tables_keep_foreign_files_of_columns() {
    let folder = Folder::iris();
    let model = folder.root().to_str().unwrap();
    let infer = InferCommand::new("").flags(&["--embedded", model, "-i", "in.csv", "-o", "out.csv"]);
    fs::write(infer.path("in.csv"), csv(2)).unwrap();
    let columns = infer.path("out.csv.columns");
    fs::write(&columns, "name,type\n").unwrap();
    let ran = infer.run();
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(ran.stderr.contains("out.csv.columns` is not the output of `mlserver infer`: "), "{}", ran.stderr);
    assert_eq!(fs::read_to_string(&columns).unwrap(), "name,type\n");
    assert!(!infer.path("out.csv").exists() && !infer.path("out.csv.partial").exists());
    // What a run leaves that is killed during the conversion is replaced.
    for left in ["", "batch_in", "batch_index,id,predict,error\n0,,"] {
        fs::write(&columns, left).unwrap();
        assert_eq!(infer.run().code, Some(0), "{left}");
        assert!(!columns.exists() && infer.path("out.csv").exists());
    }
}

#[test]
fn infer_tables_column_with_few_texts_is_reported() {
    let folder = Folder::iris();
    let model = folder.root().to_str().unwrap();
    let infer = InferCommand::new("").flags(&["--embedded", model, "-i", "in.csv", "-o", "out.csv"]);
    fs::write(infer.path("in.csv"), csv(2) + "1,x,3,4\n").unwrap();
    let ran = infer.run();
    let warning = "warning: column `sepal width` is sent as text (BYTES), because row 2 has no number there; with `--column-type \
                   'sepal width=FP64'`, only such rows fail\n";
    assert_eq!(ran.code, Some(4), "{}", ran.stderr);
    assert!(ran.stderr.contains(warning) && ran.stderr.contains("3 of 3 rows failed"), "{}", ran.stderr);
    let ran = infer.flags(&["--column-type", "sepal width=FP64"]).run();
    // The datatype has been specified already.
    assert!(ran.stderr.contains("warning: row 2: column `sepal width`: `x` is not a valid FP64\n"), "{}", ran.stderr);
    assert!(!ran.stderr.contains("is sent as text") && ran.stderr.contains("1 of 3 rows failed"), "{}", ran.stderr);
}

#[cfg(feature = "parquet")]
#[test]
fn infer_tables_outputs_become_parquet() {
    let server = TestServer::quickstart();
    let infer =
        InferCommand::new("").flags(&["-u", &server.http.to_string(), "-m", IRIS, "-i", "in.csv", "-o", "out.parquet"]);
    fs::write(infer.path("in.csv"), csv(300)).unwrap();
    let ran = infer.run();
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let rows = parquet_rows(&infer.path("out.parquet"));
    assert_eq!(rows.len(), 300);
    assert_eq!(rows[1], r#"{batch_index: 1, id: "", predict: 2, error: null}"#);
}

#[cfg(feature = "parquet")]
#[test]
fn infer_tables_parquet_has_each_row_once_after_kills() {
    let server = ScriptedServer::serve(|request| {
        pause(Duration::from_millis(5));
        request.echo()
    });
    let address = server.address.to_string();
    let infer = InferCommand::new(super::numbers(10_000)).flags(&["-u", &address, "-m", "m", "-i", "in.jsonl"]);
    let infer = infer.flags(&["-o", "out.parquet", "-s", "50", "-w", "2", "--resume"]);
    let [partial, columns, complete] =
        ["out.parquet.partial", "out.parquet.columns", "out.parquet"].map(|name| infer.path(name));
    let written = || fs::metadata(&partial).map_or(0, |metadata| metadata.len());
    let kill_when = |what: &str, condition: &dyn Fn() -> bool| {
        let mut child = infer.spawn();
        wait_until(what, condition);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(partial.exists() && !complete.exists());
    };
    for _ in 0..3 {
        let before = written();
        kill_when("nothing is written", &|| written() > before + 100_000);
        assert!(!columns.exists());
    }
    for _ in 0..3 {
        kill_when("there are no columns", &|| columns.exists());
        assert_eq!(fs::read_to_string(&partial).unwrap().lines().count(), 10_000);
    }
    let asked = server.received().len();
    let ran = infer.run();
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(server.received().len(), asked, "nothing is asked for twice");
    let expected: Vec<String> =
        (0..10_000).map(|row| format!("{{batch_index: {row}, id: \"id-{row}\", y: {row}, error: null}}")).collect();
    assert!(parquet_rows(&complete) == expected);
    let mut left: Vec<_> =
        fs::read_dir(complete.parent().unwrap()).unwrap().map(|file| file.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["in.jsonl", "out.parquet"]);
}

/// A file in row groups, with one column of each precision, one of which may have missing values.
#[cfg(feature = "parquet")]
fn parquet(rows: usize, compression: ::parquet::basic::Compression) -> Vec<u8> {
    use std::sync::Arc;

    use ::parquet::basic::{Repetition, Type as Physical};
    use parquet::data_type::{DoubleType, FloatType};
    use parquet::file::properties::WriterProperties;
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::types::Type;

    let column = |name: &str, physical, repetition| {
        Arc::new(Type::primitive_type_builder(name, physical).with_repetition(repetition).build().unwrap())
    };
    let fields = vec![
        column("sepal length", Physical::DOUBLE, Repetition::REQUIRED),
        column("sepal width", Physical::DOUBLE, Repetition::OPTIONAL),
        column("petal length", Physical::FLOAT, Repetition::REQUIRED),
        column("petal width", Physical::DOUBLE, Repetition::REQUIRED),
    ];
    let schema = Arc::new(Type::group_type_builder("rows").with_fields(fields).build().unwrap());
    let properties = WriterProperties::builder().set_compression(compression).build();
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties)).unwrap();
    let all: Vec<[f64; 4]> = (0..rows).map(|row| IRISES[row % 3].0).collect();
    for part in all.chunks(rows * 2 / 3) {
        let mut group = writer.next_row_group().unwrap();
        for index in 0..4 {
            let values: Vec<f64> = part.iter().map(|row| row[index]).collect();
            let mut column = group.next_column().unwrap().unwrap();
            if index == 2 {
                #[expect(clippy::cast_possible_truncation, reason = "the numbers have one decimal")]
                let values: Vec<f32> = values.into_iter().map(|value| value as f32).collect();
                column.typed::<FloatType>().write_batch(&values, None, None).unwrap();
            } else {
                let levels = vec![1; values.len()];
                column.typed::<DoubleType>().write_batch(&values, (index == 1).then_some(&levels), None).unwrap();
            }
            column.close().unwrap();
        }
        group.close().unwrap();
    }
    writer.into_inner().unwrap()
}

#[test]
fn infer_csv_finds_columns_of_lightgbm_by_name() {
    let server = TestServer::start(crate::models::columns::folder());
    let predict = |content: &str| {
        let infer = InferCommand::new("").flags(&[
            "-u",
            &server.http.to_string(),
            "-m",
            "lightgbm",
            "-i",
            "in.csv",
            "-o",
            "out.jsonl",
        ]);
        fs::write(infer.path("in.csv"), content).unwrap();
        infer.run()
    };
    for content in ["a,b b,c,d\n5.1,3.5,1.4,0.2\n", "d,c,b_b,a\n0.2,1.4,3.5,5.1\n"] {
        let value = predict(content).lines(0)[0]["outputs"][0]["data"][0].as_f64().unwrap();
        assert!((value - 16.329_559_2).abs() < 1e-5, "{content}: {value}");
    }
    for content in ["w,x,y,z\n5.1,3.5,1.4,0.2\n", "a,b_b,c,x\n5.1,3.5,1.4,0.2\n"] {
        let lines = predict(content).lines(4);
        let error = lines[0]["error"]["msg"].as_str().unwrap();
        assert!(error.contains("which this model does not have"), "{content}: {error}");
    }
}

#[test]
fn infer_tables_request_the_outputs_that_are_named() {
    let server = TestServer::quickstart();
    let infer = InferCommand::new("");
    let infer = infer.flags(&["-u", &server.http.to_string(), "-m", IRIS, "-i", "in.csv", "-o", "out.csv"]);
    let infer = infer.flags(&["--outputs", "predict,contributions"]);
    fs::write(infer.path("in.csv"), csv(3)).unwrap();
    let exit = infer.run();
    assert_eq!(exit.code, Some(0), "{}", exit.stderr);
    let written = fs::read_to_string(infer.path("out.csv")).unwrap();
    let header = written.lines().next().unwrap();
    assert!(header.contains("predict") && header.contains("contributions[0]"), "{header}");
    assert!(header.contains("contributions[14]") && !header.contains("contributions[15]"), "{header}");
    assert_eq!(written.lines().count(), 4);
    let lines = of_irises(&server, "in.jsonl", "{}").flags(&["--outputs", "leaf"]);
    let failed = lines.run();
    assert_eq!(failed.code, Some(2), "{}", failed.stderr);
    assert!(failed.stderr.contains("--outputs applies to rows and tables"), "{}", failed.stderr);
}
