//! Times the way to a Python worker and back.
//!
//! Usage: `cargo run --profile dist --example hop -- PYTHON [TEXT]`, where PYTHON is an interpreter with NumPy, and lines without
//! TEXT are omitted. Prints Markdown: round trips without user code (the worker's loop sends the bytes back), and calls of
//! a model that echoes a tensor.
#![expect(clippy::print_stdout, reason = "the report goes to standard output")]
#![expect(clippy::cast_precision_loss, reason = "counts of calls are far below 2^52")]

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use mlserver::runtimes::Runtime;
use mlserver::runtimes::python::{Python, PythonOptions};
use mlserver::runtimes::workers::WorkerOptions;
use mlserver::settings::{ModelSettings, WorkerSettings};
use mlserver::types::{Datatype, InferenceRequest, Parameters, Tensor, TensorData};

/// How long each measurement takes, of which there are `ROUNDS` for each line.
const BUDGET: Duration = Duration::from_secs(1);
const ROUNDS: usize = 5;

const MODEL: &str = "
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceResponse


class Echo(MLModel):
    async def predict(self, payload):
        arrays = [(one.name, self.decode(one, default_codec=NumpyCodec)) for one in payload.inputs]
        outputs = [NumpyCodec.encode_output(name, one) for name, one in arrays]
        return InferenceResponse(model_name=self.name, outputs=outputs)


class Plain(MLModel):
    def predict(self, payload):
        outputs = [NumpyCodec.encode_output(one.name, self.decode(one, default_codec=NumpyCodec)) for one in payload.inputs]
        return InferenceResponse(model_name=self.name, outputs=outputs)
";

/// What is sent.
#[derive(Clone)]
enum Work {
    Ping,
    Predict(Arc<dyn Runtime>),
}

#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let python = arguments.next().context("usage: hop PYTHON [TEXT]")?;
    let only = arguments.next().unwrap_or_default();
    let folder = tempfile::tempdir()?;
    fs::write(folder.path().join("hop_models.py"), MODEL)?;
    let options = PythonOptions {
        workers: WorkerOptions {
            settings: WorkerSettings {
                python_executable: Some(python.into()),
                environments_dir: folder.path().join("environments"),
                ..WorkerSettings::default()
            },
            ..WorkerOptions::default()
        },
        working_directory: PathBuf::from("/"),
        variables: [("XDG_CACHE_HOME".to_owned(), folder.path().to_string_lossy().into_owned())].into(),
        ..PythonOptions::default()
    };
    let python = Python::new(options);
    let load = async |class: &str| {
        let mut settings = ModelSettings::new(class, &format!("hop_models.{class}"));
        settings.source = Some(folder.path().join("model-settings.json"));
        python.load(&settings, None).await.map(Work::Predict)
    };
    let (echo, plain) = (load("Echo").await?, load("Plain").await?);
    println!(
        "| round trip | in flight | per second | min | max | p50 µs | p99 µs |\n|---|---:|---:|---:|---:|---:|---:|"
    );
    let lines = [
        ("no user code, 1 KiB", Work::Ping, 1 << 10, &[1, 16, 64][..]),
        ("no user code, 1 MiB", Work::Ping, 1 << 20, &[1, 4]),
        ("NumPy echo, coroutine, 1 KiB", echo.clone(), 1 << 10, &[1, 16]),
        ("NumPy echo, coroutine, 1 MiB", echo, 1 << 20, &[1, 4]),
        ("NumPy echo, plain function, 1 KiB", plain, 1 << 10, &[1, 16]),
    ];
    for (label, work, size, in_flight) in lines.into_iter().filter(|(label, ..)| label.contains(&only)) {
        for &in_flight in in_flight {
            let mut rounds = Vec::new();
            for _ in 0..ROUNDS {
                rounds.push(round(&python, &work, size, in_flight).await?);
            }
            rounds.sort_by(|a, b| a.rate.total_cmp(&b.rate));
            let Round { rate, p50, p99 } = rounds[ROUNDS / 2];
            let (min, max) = (rounds[0].rate, rounds[ROUNDS - 1].rate);
            let micros = |time: Duration| time.as_secs_f64() * 1e6;
            println!(
                "| {label} | {in_flight} | {rate:.0} | {min:.0} | {max:.0} | {:.1} | {:.1} |",
                micros(p50),
                micros(p99)
            );
        }
    }
    python.workers().stop().await;
    Ok(())
}

#[derive(Clone, Copy)]
struct Round {
    rate: f64,
    p50: Duration,
    p99: Duration,
}

/// Keeps `in_flight` calls with `size` bytes open for a while.
async fn round(python: &Python, work: &Work, size: usize, in_flight: usize) -> Result<Round> {
    let begun = Instant::now();
    let clients: Vec<_> = (0..in_flight)
        .map(|_| {
            let (python, work, payload) = (python.clone(), work.clone(), Bytes::from(vec![1; size]));
            tokio::spawn(async move {
                let mut times = Vec::new();
                while begun.elapsed() < BUDGET {
                    let sent = Instant::now();
                    let found = call(&python, &work, payload.clone()).await?;
                    times.push(sent.elapsed());
                    ensure!(found == payload, "other bytes came back");
                }
                Ok(times)
            })
        })
        .collect();
    let mut times = Vec::new();
    for client in clients {
        times.extend(client.await??);
    }
    let rate = times.len() as f64 / begun.elapsed().as_secs_f64();
    times.sort();
    let at = |part: usize| times[(times.len() * part / 100).min(times.len() - 1)];
    Ok(Round { rate, p50: at(50), p99: at(99) })
}

async fn call(python: &Python, work: &Work, payload: Bytes) -> Result<Bytes> {
    let runtime = match work {
        Work::Ping => return python.workers().ping(payload).await.context("the worker has gone"),
        Work::Predict(runtime) => runtime,
    };
    let (name, shape) = ("x".to_owned(), vec![1, payload.len() / 4]);
    let data = TensorData::Fixed(payload);
    let input = Tensor {
        name,
        datatype: Datatype::Fp32,
        shape,
        parameters: Parameters::default(),
        data,
        nested: false,
        as_sent: None,
    };
    let request = InferenceRequest { id: "bench".to_owned(), inputs: vec![input], ..InferenceRequest::default() };
    let mut response = runtime.predict(request, Arc::new(())).await?;
    match response.outputs.pop().map(|output| output.data) {
        Some(TensorData::Fixed(bytes)) => Ok(bytes),
        _ => anyhow::bail!("the model answered something else"),
    }
}
