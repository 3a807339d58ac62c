//! Measures how long a network of ONNX takes on one thread, with every dimension that has a name given by its size:
//!
//!     cargo run --release -p mlserver-evaluators --features networks --example network_time -- model.onnx n=1 length=16

#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a program for people")]

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use mlserver_evaluators::onnx::networks::Network;
use mlserver_evaluators::onnx::{DeclaredDimension, ElementType, Shape, Tensor, ValueInfo};

/// How long to measure.
const SECONDS: u64 = 3;

fn input(value: &ValueInfo, sizes: &HashMap<String, usize>) -> Tensor<'static> {
    let size = |dimension: &DeclaredDimension| match dimension {
        DeclaredDimension::Fixed(size) => *size,
        DeclaredDimension::Named(name) => *sizes.get(name).unwrap_or(&1),
        DeclaredDimension::Unknown => 1,
    };
    let dimensions: Vec<usize> = value.dimensions.as_ref().unwrap().iter().map(size).collect();
    let shape = Shape::new(&dimensions).unwrap();
    let tensor = match value.element {
        ElementType::I64 => Tensor::of(shape, vec![1_i64; shape.count()]),
        ElementType::I32 => Tensor::of(shape, vec![1_i32; shape.count()]),
        _ => Tensor::of(shape, vec![0.5_f32; shape.count()]),
    };
    tensor.unwrap()
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().unwrap();
    let sizes: HashMap<String, usize> = arguments
        .map(|argument| {
            let (name, size) = argument.split_once('=').unwrap();
            (name.to_owned(), size.parse().unwrap())
        })
        .collect();
    let file = std::fs::read(&path).unwrap();
    let began = Instant::now();
    let network = Network::load(&file, &|_| Err("there is none".to_owned()), 1).unwrap();
    let loaded = began.elapsed();
    let inputs: Vec<Tensor<'_>> = network.interface().inputs.iter().map(|value| input(value, &sizes)).collect();
    let all: Vec<usize> = (0..network.interface().outputs.len()).collect();
    let stop = AtomicBool::new(false);
    let (mut times, until) = (Vec::new(), Instant::now() + Duration::from_secs(SECONDS));
    while Instant::now() < until {
        let began = Instant::now();
        network.evaluate(&inputs, &all, &stop).unwrap();
        times.push(began.elapsed());
    }
    times.sort_unstable();
    let (least, median) = (times[0], times[times.len() / 2]);
    println!("{path}: loaded in {loaded:?}; {} evaluations, least {least:?}, median {median:?}", times.len());
}
