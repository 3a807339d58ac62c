//! JSON tensors: our reader and writer compared with those of `serde_json`, in one run.
//!
//! `cargo bench --bench tensor_json`. The ratio of two lines of one group is the figure that matters.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use mlserver::types::json::openai::{Pooling, VectorEncoding, VectorOptions, write_embeddings};
use mlserver::types::json::{WriteOptions, read_request, write_response};
use mlserver::types::{InferenceResponse, Tensor};

/// 1000 rows of 256 features.
const ELEMENTS: usize = 256_000;

/// Returns pseudorandom numbers from -1 to 1 that are the same in every run.
fn numbers() -> Vec<f32> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        #[expect(clippy::cast_precision_loss, reason = "24 bits fit an f32")]
        let unit = (state >> 40) as f32 / 16_777_216.0;
        unit * 2.0 - 1.0
    };
    (0..ELEMENTS).map(next).collect()
}

fn request(data: &str) -> String {
    format!(r#"{{"inputs":[{{"name":"x","shape":[1000,256],"datatype":"FP32","data":{data}}}]}}"#)
}

fn read(criterion: &mut Criterion) {
    let numbers = numbers();
    let doubles: Vec<f64> = numbers.iter().map(|&number| f64::from(number)).collect();
    let rows: Vec<_> = numbers.chunks(256).collect();
    let forms = [
        ("shortest f32", serde_json::to_string(&numbers)),
        // How Python writes a float32 array: every number as a double.
        ("17 digits", serde_json::to_string(&doubles)),
    ];
    for (form, data) in forms {
        let data = data.expect("numbers are finite");
        let body = request(&data);
        let mut group = criterion.benchmark_group(format!("read 256000 FP32, {form}"));
        group.throughput(Throughput::Bytes(data.len() as u64));
        group.bench_function("serde_json Vec<f32>", |bencher| {
            bencher.iter(|| serde_json::from_str::<Vec<f32>>(black_box(&data)).map(|numbers| numbers.len()));
        });
        group.bench_function("mlserver request", |bencher| {
            bencher
                .iter(|| read_request(black_box(body.as_bytes()), None).map(|incoming| incoming.request.inputs.len()));
        });
        group.finish();
    }
    let nested = request(&serde_json::to_string(&rows).expect("numbers are finite"));
    criterion.bench_function("read 256000 FP32, shortest f32, nested", |bencher| {
        bencher.iter(|| read_request(black_box(nested.as_bytes()), None).map(|incoming| incoming.request.inputs.len()));
    });
    let small = r#"{"id":"a","inputs":[{"name":"input-0","shape":[1,4],"datatype":"FP32","data":[6.2,2.8,4.8,1.8]}]}"#;
    criterion.bench_function("read 1x4 FP32", |bencher| {
        bencher.iter(|| read_request(black_box(small.as_bytes()), None).map(|incoming| incoming.request.inputs.len()));
    });
}

fn write(criterion: &mut Criterion) {
    let numbers = numbers();
    let tensor = Tensor::from_elements("x", vec![1000, 256], &numbers).expect("the shape fits");
    let response = InferenceResponse { outputs: vec![tensor], ..InferenceResponse::default() };
    let options = WriteOptions::default();
    let mut group = criterion.benchmark_group("write 256000 FP32");
    group.bench_function("serde_json Vec<f32>", |bencher| {
        bencher.iter(|| serde_json::to_vec(black_box(&numbers)).map(|text| text.len()));
    });
    group.bench_function("mlserver response", |bencher| {
        bencher.iter(|| write_response(black_box(&response), &options).map(|written| written.json.len()));
    });
    group.finish();
}

fn embed(criterion: &mut Criterion) {
    let tensor = Tensor::from_elements("embedding", vec![1, 768], &numbers()[..768]).expect("the shape fits");
    let mut group = criterion.benchmark_group("an embedding of 768 FP32");
    for (form, encoding) in [("base64", VectorEncoding::Base64), ("numbers", VectorEncoding::Float)] {
        let options = VectorOptions { pooling: Pooling::None, normalize: false, dimensions: None, encoding };
        group.bench_function(form, |bencher| {
            bencher.iter(|| write_embeddings(black_box(&tensor), &options, 1, "m").map(|text| text.len()));
        });
    }
    group.finish();
}

criterion_group!(benches, read, write, embed);
criterion_main!(benches);
