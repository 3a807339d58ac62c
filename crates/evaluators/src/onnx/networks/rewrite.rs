//! Operators that the engine computes differently become others that it computes as onnxruntime does.

use super::plan::{
    ELEMENTS, EngineAttribute, EngineNode, Planner, State, Value, engine_type, inconsistent, is_float, is_integer,
    wide_number,
};
use super::rules::Effect;
use crate::onnx::constant;
use crate::onnx::error::NodeFault;
use crate::onnx::flatten::{FlatNode, ValueId};
use crate::onnx::proto::AttributeValue;
use crate::onnx::tensor::{Element, ElementType, Shape, Tensor};

/// The first opset whose `Softmax` works along one axis.
const SOFTMAX_OF_AXIS: i64 = 13;

impl<'m, 'a> Planner<'m, 'a, '_> {
    /// Adds a node, or those that stand for it.
    pub(super) fn rewrite(
        &mut self,
        node: &'m FlatNode<'a>,
        mut engine: EngineNode<'a>,
        values: &[Option<Value<'m, 'a>>],
    ) -> Result<(), NodeFault> {
        match node.operator {
            "Cast" => return self.cast(node, engine),
            "Softmax" | "LogSoftmax" if node.opset < SOFTMAX_OF_AXIS => return self.old_softmax(engine),
            "ConstantOfShape" => self.constant_of_shape(node, &mut engine)?,
            "ArgMax" | "ArgMin" => return self.first_position(engine),
            "Conv" | "ConvTranspose" => kernel_shape(&mut engine, values)?,
            "ConvInteger" => {
                kernel_shape(&mut engine, values)?;
                return self.conv_integer(engine, values);
            }
            "MatMulInteger" => return self.mat_mul_integer(engine, values),
            "GRU" if !engine.attributes.iter().any(|(name, _)| *name == "linear_before_reset") => {
                return Err(NodeFault::Unsupported("`linear_before_reset` = 0".to_owned()));
            }
            "AveragePool" | "MaxPool" => strides(&mut engine),
            "Mod" => {
                let is_fmod = engine.attributes.iter().any(|(_, value)| matches!(value, EngineAttribute::Int(1)));
                if values.iter().flatten().any(|value| is_float(value.element)) && !is_fmod {
                    return Err(NodeFault::Unsupported("`fmod` = 0 of floating-point numbers".to_owned()));
                }
            }
            // The regions are used by a mode that is refused.
            "Resize" => {
                if let Some(region) = engine.inputs.get_mut(1) {
                    *region = None;
                }
            }
            "Split" => {
                let has_sizes = engine.inputs.len() > 1 || engine.attributes.iter().any(|(name, _)| *name == "split");
                engine.attributes.retain(|(name, _)| *name != "num_outputs");
                if !has_sizes {
                    let count = i64::try_from(engine.outputs.len()).unwrap_or(i64::MAX);
                    engine.attributes.push(("num_outputs", EngineAttribute::Int(count)));
                }
            }
            "QuantizeLinear" | "DequantizeLinear" => {
                engine.attributes.retain(|(name, _)| *name != "output_dtype");
                if !engine.attributes.iter().any(|(name, _)| *name == "axis") {
                    engine.attributes.push(("axis", EngineAttribute::Int(1)));
                }
            }
            _ => {}
        }
        self.nodes.push(engine);
        Ok(())
    }

    /// Adds a node of the engine that computes one new value.
    pub(super) fn step(
        &mut self,
        of: &EngineNode<'a>,
        operator: &'static str,
        inputs: &[ValueId],
        element: ElementType,
        attributes: Vec<(&'a str, EngineAttribute<'a>)>,
    ) -> ValueId {
        let output = self.new_value(element, State::Computed, false);
        self.nodes.push(EngineNode {
            name: of.name.clone(),
            title: of.title,
            opset: of.opset,
            operator,
            inputs: inputs.iter().copied().map(Some).collect(),
            outputs: vec![Some(output)],
            attributes,
            effect: Effect::Keep,
            numbers: inputs.to_vec(),
        });
        output
    }

    fn scalar<T: Element>(&mut self, value: T) -> Result<ValueId, NodeFault> {
        self.constant_of(Shape::default(), vec![value])
    }

    fn cast(&mut self, node: &FlatNode<'a>, mut engine: EngineNode<'a>) -> Result<(), NodeFault> {
        let to = node.attributes.iter().find_map(|attribute| match attribute.value {
            AttributeValue::Int(number) if attribute.name == "to" => Some(number),
            _ => None,
        });
        let to = to.ok_or_else(|| NodeFault::Damaged("it has no attribute `to`".to_owned()))?;
        let unknown = || NodeFault::Unsupported(format!("to convert to {}", ElementType::name_of(to)));
        let to = ElementType::of_number(to).filter(|to| ELEMENTS.contains(to)).ok_or_else(unknown)?;
        let (Some(Some(input)), Some(Some(output))) = (engine.inputs.first(), engine.outputs.first()) else {
            return Err(NodeFault::MissingInput { index: 0 });
        };
        let (input, output) = (*input, *output);
        let Some(value) = self.values[input].clone() else { return Err(NodeFault::MissingInput { index: 0 }) };
        let from = value.element;
        if let Some(output) = self.values[output].as_mut() {
            output.element = to;
        }
        let number = |element| {
            EngineAttribute::Int(match engine_type(element) {
                ElementType::U8 => 2,
                ElementType::I8 => 3,
                ElementType::I32 => 6,
                _ => 1,
            })
        };
        if to == ElementType::Bool && from != ElementType::Bool {
            let (mut input, mut zero) = (input, None);
            if is_float(from) {
                zero = Some(self.scalar(0.0_f32)?);
            } else if !is_integer(from) {
                input = self.step(&engine, "Cast", &[input], ElementType::I32, vec![("to", number(ElementType::I32))]);
            }
            let zero = zero.map_or_else(|| self.scalar(0_i32), Ok)?;
            let is_zero = self.step(&engine, "Equal", &[input, zero], ElementType::Bool, Vec::new());
            engine.operator = "Not";
            engine.inputs = vec![Some(is_zero)];
            engine.attributes.clear();
        } else if engine_type(from) == engine_type(to) {
            engine.operator = "Identity";
            engine.attributes.clear();
        } else if is_float(from) && matches!(to, ElementType::I8 | ElementType::U8) {
            // What becomes of numbers outside of the range depends on the processor in onnxruntime.
            return Err(NodeFault::Unsupported(format!("to convert {from} to {to}")));
        } else {
            let mut input = input;
            if is_float(from) && !value.is_size {
                // NaN and numbers from 2^31 on become the lowest number, as in onnxruntime. No index equals it.
                let (limit, lowest) = (self.scalar(2_147_483_648.0_f32)?, self.scalar(f32::MIN)?);
                let fits = self.step(&engine, "Less", &[input, limit], ElementType::Bool, Vec::new());
                input = self.step(&engine, "Where", &[fits, input, lowest], from, Vec::new());
            }
            engine.inputs = vec![Some(input)];
            engine.attributes = vec![("to", number(to))];
        }
        self.nodes.push(engine);
        Ok(())
    }

    /// Finds the first of equal numbers, in the reverse order, since the engine finds the last.
    fn first_position(&mut self, mut engine: EngineNode<'a>) -> Result<(), NodeFault> {
        let (Some(Some(input)), Some(output)) = (engine.inputs.first().copied(), engine.outputs.first().copied())
        else {
            return Err(NodeFault::MissingInput { index: 0 });
        };
        let axis = engine.attributes.iter().find_map(|(name, value)| match value {
            EngineAttribute::Int(axis) if *name == "axis" => Some(*axis),
            _ => None,
        });
        let axis = axis.unwrap_or(0);
        let element = self.values[input].as_ref().map_or(ElementType::F32, |value| value.element);
        let one_number = Shape::of_list(1).ok_or_else(inconsistent)?;
        let last = self.constant_of(one_number, vec![-1_i64])?;
        let end = self.constant_of(one_number, vec![i64::from(i32::MIN)])?;
        let along = self.constant_of(one_number, vec![axis])?;
        let reversed = self.step(&engine, "Slice", &[input, last, end, along, last], element, Vec::new());
        let shape = self.step(&engine, "Shape", &[input], ElementType::I64, Vec::new());
        let axis = self.scalar(axis)?;
        let size = self.step(&engine, "Gather", &[shape, axis], ElementType::I64, Vec::new());
        let one = self.scalar(1_i64)?;
        let last = self.step(&engine, "Sub", &[size, one], ElementType::I64, Vec::new());
        let position = self.new_value(ElementType::I64, State::Computed, true);
        for id in [shape, size, last] {
            if let Some(value) = self.values[id].as_mut() {
                value.is_size = true;
            }
        }
        let difference = EngineNode {
            name: engine.name.clone(),
            operator: "Sub",
            inputs: vec![Some(last), Some(position)],
            outputs: vec![output],
            attributes: Vec::new(),
            effect: Effect::Sizes,
            numbers: Vec::new(),
            ..engine
        };
        engine.inputs = vec![Some(reversed)];
        engine.outputs = vec![Some(position)];
        self.nodes.extend([engine, difference]);
        Ok(())
    }

    /// Before opset 13, the axes from `axis` on are one.
    fn old_softmax(&mut self, mut engine: EngineNode<'a>) -> Result<(), NodeFault> {
        let Some(Some(input)) = engine.inputs.first().copied() else {
            return Err(NodeFault::MissingInput { index: 0 });
        };
        let axis = engine.attributes.iter().find_map(|(_, value)| match value {
            EngineAttribute::Int(axis) => Some(*axis),
            _ => None,
        });
        let element = self.values[input].as_ref().map_or(ElementType::F32, |value| value.element);
        let axis = vec![("axis", EngineAttribute::Int(axis.unwrap_or(1)))];
        let matrix = self.step(&engine, "Flatten", &[input], element, axis);
        let last = vec![("axis", EngineAttribute::Int(-1))];
        let scores = self.step(
            &engine,
            if engine.title == "Softmax" { "Softmax" } else { "LogSoftmax" },
            &[matrix],
            element,
            last,
        );
        let shape = self.step(&engine, "Shape", &[input], ElementType::I64, Vec::new());
        if let Some(shape) = self.values[shape].as_mut() {
            shape.is_size = true;
        }
        engine.operator = "Reshape";
        engine.inputs = vec![Some(scores), Some(shape)];
        engine.attributes.clear();
        self.nodes.push(engine);
        Ok(())
    }

    fn constant_of_shape(&mut self, node: &FlatNode<'a>, engine: &mut EngineNode<'a>) -> Result<(), NodeFault> {
        let mut value = Tensor::of(Shape::default(), vec![0.0_f32]).ok_or_else(inconsistent)?;
        for attribute in &node.attributes {
            if let AttributeValue::Tensor(tensor) = &attribute.value {
                let no_file = |_: &constant::ExternalRange<'_>| Err("attributes have no other files".to_owned());
                let read = constant::read(tensor, &no_file);
                value = read.map_err(|error| NodeFault::Damaged(error.to_string()))?;
            }
        }
        let element = value.element_type();
        if value.elements().len() != 1 || !ELEMENTS.contains(&element) {
            return Err(NodeFault::Unsupported("this value of attribute `value`".to_owned()));
        }
        if let Some(number) = wide_number(&value) {
            return Err(NodeFault::Unsupported(format!("the number {number}, outside of int32,")));
        }
        if let Some(output) = engine.outputs.first().copied().flatten().and_then(|id| self.values[id].as_mut()) {
            output.element = element;
        }
        // The numbers of the output are that of the attribute.
        let number = self.new_value(element, State::Constant(value.clone()), true);
        engine.numbers = vec![number];
        engine.attributes = vec![("value", EngineAttribute::Tensor(value))];
        Ok(())
    }
}

/// Tells the engine how many dimensions a kernel has.
fn kernel_shape(engine: &mut EngineNode<'_>, values: &[Option<Value<'_, '_>>]) -> Result<(), NodeFault> {
    let is_valid = engine
        .attributes
        .iter()
        .any(|(name, value)| *name == "auto_pad" && matches!(value, EngineAttribute::Text(b"VALID")));
    if is_valid {
        engine.attributes.retain(|(name, _)| *name != "pads");
    }
    if engine.attributes.iter().any(|(name, _)| *name == "kernel_shape") {
        return Ok(());
    }
    let shape = match values.get(1).and_then(Option::as_ref).map(|value| &value.state) {
        Some(State::Constant(tensor)) => Some(*tensor.shape()),
        Some(State::Weight(_, shape)) => Some(*shape),
        _ => None,
    };
    let missing = || NodeFault::Unsupported("without the attribute `kernel_shape`, it".to_owned());
    let shape = shape.filter(|shape| shape.rank() > 2).ok_or_else(missing)?;
    let sizes = shape.dimensions()[2..].iter().map(|size| i64::try_from(*size).unwrap_or(i64::MAX));
    engine.attributes.push(("kernel_shape", EngineAttribute::Ints(sizes.collect())));
    Ok(())
}

/// Tells the engine the default of a pool's strides.
fn strides(engine: &mut EngineNode<'_>) {
    let kernel = engine.attributes.iter().find_map(|(name, value)| match value {
        EngineAttribute::Ints(sizes) if *name == "kernel_shape" => Some(sizes.len()),
        _ => None,
    });
    if !engine.attributes.iter().any(|(name, _)| *name == "strides") {
        engine.attributes.push(("strides", EngineAttribute::Ints(vec![1; kernel.unwrap_or(0)])));
    }
}
