//! The operators of networks: which of their versions, types and attributes the engine computes as onnxruntime does.

use crate::onnx::tensor::ElementType;

/// A set of element types.
pub(super) type Types = u16;

/// Floating-point numbers. FP16 is computed in FP32.
const F: Types = bit(ElementType::F32) | bit(ElementType::F16);
const I: Types = bit(ElementType::I32) | bit(ElementType::I64);
const INT32: Types = bit(ElementType::I32);
const INT64: Types = bit(ElementType::I64);
const B: Types = bit(ElementType::Bool);
/// Quantized numbers.
const Q: Types = bit(ElementType::I8) | bit(ElementType::U8);
const U8: Types = bit(ElementType::U8);
const ALL: Types = F | I | B | Q;

const fn bit(element: ElementType) -> Types {
    1 << element as u16
}

/// Returns whether a type belongs to a set.
pub(super) const fn contains(types: Types, element: ElementType) -> bool {
    types & bit(element) != 0
}

/// The types of an input.
#[derive(Debug, Clone, Copy)]
pub(super) enum Slot {
    /// The type of the operator, which all such inputs share.
    T,
    Of(Types),
    /// The engine ignores the input, so that it must be left out.
    Refused,
}

/// The type of an output.
#[derive(Debug, Clone, Copy)]
pub(super) enum Output {
    T,
    Of(ElementType),
    /// The type of another input.
    Like(usize),
    /// The engine does not compute the output, so that nothing may use it.
    Refused,
}

/// How large the integers of the outputs can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    /// As large as those of the inputs.
    Keep,
    /// As large as their sum.
    Add,
    /// As large as their product.
    Multiply,
    /// As large as a sum over many elements, or a power.
    Total,
    /// No larger than the size of a tensor.
    Sizes,
    /// No larger than the inputs, but other than those of the inputs.
    Compute,
}

/// What the values of an attribute must be.
#[derive(Debug, Clone, Copy)]
pub(super) enum Check {
    Any,
    Int(i64),
    Float(f32),
    /// All integers of a list are 1.
    Ones,
    /// Integers that are small, so that a node of few bytes does not ask for unbounded memory.
    Small,
    Text(&'static [&'static str]),
    /// A list that repeats these.
    Texts(&'static [&'static str]),
}

/// An operator.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rule {
    pub(super) name: &'static str,
    /// The oldest version of `ai.onnx` in which the operator has this meaning.
    pub(super) since: i64,
    /// The newest version.
    pub(super) until: i64,
    /// The types of [`Slot::T`].
    pub(super) types: Types,
    pub(super) inputs: &'static [Slot],
    /// How many inputs must be there.
    pub(super) least: usize,
    /// Whether the last input occurs any number of times.
    pub(super) variadic: bool,
    pub(super) outputs: &'static [Output],
    pub(super) attributes: &'static [(&'static str, Check)],
    pub(super) effect: Effect,
    /// The input that says how large the output is.
    pub(super) sizes: Option<usize>,
    /// Whether the outputs are never larger than the inputs.
    pub(super) shrinks: bool,
}

impl Rule {
    const fn new(name: &'static str, types: Types, inputs: &'static [Slot], outputs: &'static [Output]) -> Self {
        Self {
            name,
            since: 7,
            until: i64::MAX,
            types,
            inputs,
            least: inputs.len(),
            variadic: false,
            outputs,
            attributes: &[],
            effect: Effect::Keep,
            sizes: None,
            shrinks: false,
        }
    }

    const fn since(self, since: i64) -> Self {
        Self { since, ..self }
    }

    const fn until(self, until: i64) -> Self {
        Self { until, ..self }
    }

    const fn least(self, least: usize) -> Self {
        Self { least, ..self }
    }

    const fn variadic(self) -> Self {
        Self { variadic: true, ..self }
    }

    const fn with(self, attributes: &'static [(&'static str, Check)]) -> Self {
        Self { attributes, ..self }
    }

    const fn effect(self, effect: Effect) -> Self {
        Self { effect, ..self }
    }

    const fn sizes(self, input: usize) -> Self {
        Self { sizes: Some(input), ..self }
    }

    const fn shrinks(self) -> Self {
        Self { shrinks: true, ..self }
    }
}

/// An operator on each element.
const fn unary(name: &'static str, types: Types) -> Rule {
    Rule::new(name, types, &[Slot::T], &[Output::T]).shrinks()
}

/// An operator on pairs of elements.
const fn binary(name: &'static str, types: Types, effect: Effect) -> Rule {
    Rule::new(name, types, &[Slot::T, Slot::T], &[Output::T]).effect(effect)
}

/// A comparison.
const fn comparison(name: &'static str, types: Types) -> Rule {
    Rule::new(name, types, &[Slot::T, Slot::T], &[Output::Of(ElementType::Bool)])
}

/// A reduction, whose axes are an attribute or an input.
const fn reduction(name: &'static str, types: Types, effect: Effect) -> Rule {
    Rule::new(name, types, &[Slot::T, Slot::Of(INT64)], &[Output::T])
        .least(1)
        .with(&[("axes", Check::Any), ("keepdims", Check::Any), ("noop_with_empty_axes", Check::Any)])
        .effect(effect)
        .shrinks()
}

const SELECTION: &[(&str, Check)] =
    &[("axis", Check::Any), ("keepdims", Check::Any), ("select_last_index", Check::Int(0))];

const AUTO_PAD: Check = Check::Text(&["NOTSET", "VALID", "SAME_UPPER"]);

const CONVOLUTION: &[(&str, Check)] = &[
    ("auto_pad", AUTO_PAD),
    ("dilations", Check::Small),
    ("group", Check::Any),
    ("kernel_shape", Check::Small),
    ("pads", Check::Small),
    ("strides", Check::Small),
];

const POOL: &[(&str, Check)] = &[
    ("auto_pad", AUTO_PAD),
    ("ceil_mode", Check::Int(0)),
    ("count_include_pad", Check::Any),
    ("dilations", Check::Ones),
    ("kernel_shape", Check::Small),
    ("pads", Check::Small),
    ("storage_order", Check::Int(0)),
    ("strides", Check::Small),
];

const AXIS: &[(&str, Check)] = &[("axis", Check::Any)];
const AXES: &[(&str, Check)] = &[("axes", Check::Any)];
const EPSILON: &[(&str, Check)] = &[("epsilon", Check::Any)];
const NORMALIZATION: &[(&str, Check)] = &[("axis", Check::Any), ("epsilon", Check::Any), ("stash_type", Check::Int(1))];
const SCATTER: &[(&str, Check)] = &[("axis", Check::Any), ("reduction", Check::Text(&["none"]))];

const DIRECTIONS: Check = Check::Text(&["forward", "reverse", "bidirectional"]);

const GRU: &[(&str, Check)] = &[
    ("activations", Check::Texts(&["Sigmoid", "Tanh"])),
    ("clip", Check::Float(0.0)),
    ("direction", DIRECTIONS),
    ("hidden_size", Check::Small),
    ("layout", Check::Int(0)),
    ("linear_before_reset", Check::Int(1)),
];

const LSTM: &[(&str, Check)] = &[
    ("activations", Check::Texts(&["Sigmoid", "Tanh", "Tanh"])),
    ("clip", Check::Float(0.0)),
    ("direction", DIRECTIONS),
    ("hidden_size", Check::Small),
    ("input_forget", Check::Int(0)),
    ("layout", Check::Int(0)),
];

const T: Slot = Slot::T;
const INDICES: Slot = Slot::Of(I);
const LIST: Slot = Slot::Of(INT64);

/// Returns the rule of an operator of `ai.onnx`.
pub(super) fn find(operator: &str) -> Option<&'static Rule> {
    RULES.iter().find(|rule| rule.name == operator)
}

/// Returns the names of all operators.
#[cfg(test)]
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    RULES.iter().map(|rule| rule.name)
}

/// Every operator, by groups.
const RULES: &[Rule] = &[
    // Elements.
    unary("Abs", F | I).effect(Effect::Compute),
    unary("Acos", F),
    unary("Acosh", F).since(9),
    unary("Asin", F),
    unary("Asinh", F).since(9),
    unary("Atan", F),
    unary("Atanh", F).since(9),
    unary("Ceil", F),
    unary("Cos", F),
    unary("Cosh", F).since(9),
    unary("Elu", F).with(&[("alpha", Check::Any)]),
    unary("Erf", F).since(9),
    unary("Exp", F),
    unary("Floor", F),
    unary("Gelu", F).since(20).with(&[("approximate", Check::Text(&["none", "tanh"]))]),
    unary("HardSigmoid", F).with(&[("alpha", Check::Any), ("beta", Check::Any)]),
    unary("HardSwish", F).since(14),
    unary("Identity", ALL),
    unary("LeakyRelu", F).with(&[("alpha", Check::Any)]),
    unary("Log", F),
    unary("Neg", F | I).effect(Effect::Compute),
    unary("Not", B),
    unary("Reciprocal", F),
    unary("Relu", F),
    unary("Round", F).since(11),
    unary("Sigmoid", F),
    unary("Sign", I).effect(Effect::Compute),
    unary("Sin", F),
    unary("Sinh", F).since(9),
    unary("Softplus", F),
    unary("Softsign", F),
    unary("Sqrt", F),
    unary("Swish", F).since(24).with(&[("alpha", Check::Any)]),
    unary("Tan", F),
    unary("Tanh", F),
    Rule::new("IsInf", F, &[T], &[Output::Of(ElementType::Bool)])
        .since(10)
        .with(&[("detect_negative", Check::Int(1)), ("detect_positive", Check::Int(1))]),
    Rule::new("IsNaN", F, &[T], &[Output::Of(ElementType::Bool)]).since(9),
    binary("Add", F | I, Effect::Add),
    binary("And", B, Effect::Keep),
    binary("Div", F | I, Effect::Compute),
    binary("Mod", F | I, Effect::Compute).since(10).with(&[("fmod", Check::Any)]),
    binary("Mul", F | I, Effect::Multiply),
    binary("Or", B, Effect::Keep),
    binary("PRelu", F, Effect::Keep),
    binary("Pow", F, Effect::Total),
    binary("Sub", F | I, Effect::Add),
    binary("Xor", B, Effect::Keep),
    comparison("Equal", F | I | B),
    comparison("Greater", F | I).since(9),
    comparison("GreaterOrEqual", F | I).since(12),
    comparison("Less", F | I).since(9),
    comparison("LessOrEqual", F | I).since(12),
    Rule::new("Max", F | I, &[T], &[Output::T]).since(8).variadic(),
    Rule::new("Mean", F, &[T], &[Output::T]).since(8).variadic(),
    Rule::new("Min", F | I, &[T], &[Output::T]).since(8).variadic(),
    Rule::new("Sum", F, &[T], &[Output::T]).since(8).variadic(),
    Rule::new("Clip", F | I, &[T, T, T], &[Output::T]).least(1).with(&[("max", Check::Any), ("min", Check::Any)]),
    Rule::new("Where", F | I | B, &[Slot::Of(B), T, T], &[Output::T]).since(9),
    Rule::new("Cast", ALL, &[T], &[Output::T])
        .with(&[("round_mode", Check::Any), ("saturate", Check::Any), ("to", Check::Any)])
        .shrinks(),
    // Layout.
    Rule::new("Concat", F | I | B, &[T], &[Output::T]).variadic().with(AXIS).shrinks(),
    Rule::new("ConstantOfShape", ALL, &[LIST], &[Output::T]).since(9).with(&[("value", Check::Any)]).sizes(0),
    Rule::new("DepthToSpace", F, &[T], &[Output::T])
        .with(&[("blocksize", Check::Any), ("mode", Check::Text(&["DCR", "CRD"]))])
        .shrinks(),
    Rule::new("Expand", F | I | B, &[T, LIST], &[Output::T]).since(8).sizes(1),
    Rule::new("Flatten", ALL, &[T], &[Output::T]).with(AXIS).shrinks(),
    Rule::new("Pad", F | I, &[T, LIST, T, Slot::Refused], &[Output::T])
        .least(1)
        .with(&[
            ("mode", Check::Text(&["constant", "reflect", "edge", "wrap"])),
            ("pads", Check::Small),
            ("value", Check::Any),
        ])
        .sizes(1),
    Rule::new("Range", F | I, &[T, T, T], &[Output::T]).since(11),
    Rule::new("Reshape", ALL, &[T, LIST], &[Output::T]).with(&[("allowzero", Check::Any)]).shrinks(),
    Rule::new("Shape", ALL, &[T], &[Output::Of(ElementType::I64)])
        .with(&[("end", Check::Any), ("start", Check::Any)])
        .effect(Effect::Sizes),
    Rule::new("Size", ALL, &[T], &[Output::Of(ElementType::I64)]).effect(Effect::Sizes),
    Rule::new("Slice", ALL, &[T, INDICES, INDICES, INDICES, INDICES], &[Output::T])
        .least(1)
        .with(&[("axes", Check::Any), ("ends", Check::Any), ("starts", Check::Any)])
        .shrinks(),
    Rule::new("Split", F | I, &[T, LIST], &[Output::T])
        .least(1)
        .with(&[("axis", Check::Any), ("num_outputs", Check::Any), ("split", Check::Any)])
        .shrinks(),
    Rule::new("Squeeze", ALL, &[T, LIST], &[Output::T]).least(1).with(AXES).shrinks(),
    Rule::new("Tile", F | I, &[T, LIST], &[Output::T]).sizes(1),
    Rule::new("Transpose", ALL, &[T], &[Output::T]).with(&[("perm", Check::Any)]).shrinks(),
    Rule::new("Trilu", F | I, &[T, LIST], &[Output::T]).since(14).least(1).with(&[("upper", Check::Any)]).shrinks(),
    Rule::new("Unsqueeze", ALL, &[T, LIST], &[Output::T]).least(1).with(AXES).shrinks(),
    // Elements by their positions.
    Rule::new("ArgMax", F | I, &[T], &[Output::Of(ElementType::I64)]).with(SELECTION).effect(Effect::Sizes),
    Rule::new("ArgMin", F | I, &[T], &[Output::Of(ElementType::I64)]).with(SELECTION).effect(Effect::Sizes),
    Rule::new("Gather", ALL, &[T, INDICES], &[Output::T]).with(AXIS),
    Rule::new("GatherElements", F | I, &[T, INDICES], &[Output::T]).since(11).with(AXIS),
    Rule::new("GatherND", F | I, &[T, LIST], &[Output::T]).since(11).with(&[("batch_dims", Check::Any)]),
    Rule::new("NonZero", F | I | B, &[T], &[Output::Of(ElementType::I64)]).since(9).effect(Effect::Sizes),
    Rule::new("OneHot", F | I, &[INDICES, INDICES, T], &[Output::T]).since(9).with(AXIS).sizes(1),
    Rule::new("ScatterElements", F | I, &[T, INDICES, T], &[Output::T]).since(11).with(SCATTER),
    Rule::new("ScatterND", F | I, &[T, LIST, T], &[Output::T]).since(11).with(&[("reduction", Check::Text(&["none"]))]),
    Rule::new("TopK", F | I, &[T, LIST], &[Output::T, Output::Of(ElementType::I64)])
        .since(10)
        .with(&[("axis", Check::Any), ("largest", Check::Any), ("sorted", Check::Int(1))])
        .shrinks(),
    // Sums.
    Rule::new("CumSum", F | I, &[T, INDICES], &[Output::T])
        .since(11)
        .with(&[("exclusive", Check::Any), ("reverse", Check::Any)])
        .effect(Effect::Total),
    reduction("ReduceL1", F | I, Effect::Total),
    reduction("ReduceL2", F, Effect::Keep),
    reduction("ReduceLogSum", F, Effect::Keep),
    reduction("ReduceLogSumExp", F, Effect::Keep),
    reduction("ReduceMax", F | I, Effect::Keep),
    reduction("ReduceMean", F, Effect::Keep),
    reduction("ReduceMin", F | I, Effect::Keep),
    reduction("ReduceProd", F | I, Effect::Total),
    reduction("ReduceSum", F | I, Effect::Total),
    reduction("ReduceSumSquare", F | I, Effect::Total),
    // Layers.
    Rule::new("AveragePool", F, &[T], &[Output::T]).with(POOL),
    Rule::new("BatchNormalization", F, &[T, T, T, T, T], &[Output::T]).with(&[
        ("epsilon", Check::Any),
        ("momentum", Check::Any),
        ("spatial", Check::Int(1)),
        ("training_mode", Check::Int(0)),
    ]),
    Rule::new("Conv", F, &[T, T, T], &[Output::T]).least(2).with(CONVOLUTION),
    Rule::new("ConvTranspose", F, &[T, T, T], &[Output::T]).least(2).with(&[
        ("auto_pad", Check::Text(&["NOTSET", "VALID"])),
        ("dilations", Check::Small),
        ("group", Check::Any),
        ("kernel_shape", Check::Small),
        ("output_padding", Check::Small),
        ("pads", Check::Small),
        ("strides", Check::Small),
    ]),
    Rule::new("Einsum", F, &[T], &[Output::T]).since(12).variadic().with(&[("equation", Check::Any)]),
    Rule::new("GRU", F, &[T, T, T, T, Slot::Refused, T], &[Output::T, Output::T]).least(3).with(GRU),
    Rule::new("Gemm", F, &[T, T, T], &[Output::T]).least(2).with(&[
        ("alpha", Check::Any),
        ("beta", Check::Any),
        ("transA", Check::Any),
        ("transB", Check::Any),
    ]),
    Rule::new("GlobalAveragePool", F, &[T], &[Output::T]),
    Rule::new("GlobalMaxPool", F, &[T], &[Output::T]),
    Rule::new("GridSample", F, &[T, T], &[Output::T]).since(16).until(19).with(&[
        ("align_corners", Check::Any),
        ("mode", Check::Text(&["bilinear"])),
        ("padding_mode", Check::Text(&["zeros"])),
    ]),
    Rule::new("InstanceNormalization", F, &[T, T, T], &[Output::T]).with(EPSILON),
    Rule::new("LSTM", F, &[T, T, T, T, Slot::Refused, T, T, Slot::Refused], &[Output::T, Output::T, Output::T])
        .least(3)
        .with(LSTM),
    Rule::new("LayerNormalization", F, &[T, T, T], &[Output::T]).since(17).least(2).with(NORMALIZATION),
    Rule::new("LogSoftmax", F, &[T], &[Output::T]).with(AXIS),
    Rule::new("LpNormalization", F, &[T], &[Output::T]).with(&[("axis", Check::Any), ("p", Check::Any)]),
    Rule::new("MatMul", F, &[T, T], &[Output::T]),
    Rule::new("MaxPool", F, &[T], &[Output::T, Output::Refused]).with(POOL),
    Rule::new("RMSNormalization", F, &[T, T], &[Output::T]).since(23).with(NORMALIZATION),
    Rule::new("Resize", F, &[T, Slot::Of(F), Slot::Of(F), LIST], &[Output::T])
        .since(11)
        .least(1)
        .with(&[
            ("antialias", Check::Int(0)),
            (
                "coordinate_transformation_mode",
                Check::Text(&["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"]),
            ),
            ("cubic_coeff_a", Check::Any),
            ("exclude_outside", Check::Int(0)),
            ("extrapolation_value", Check::Any),
            ("keep_aspect_ratio_policy", Check::Text(&["stretch"])),
            ("mode", Check::Text(&["nearest", "linear"])),
            ("nearest_mode", Check::Text(&["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"])),
        ])
        .sizes(2),
    Rule::new("Softmax", F, &[T], &[Output::T]).with(AXIS),
    // Quantized numbers.
    Rule::new("ConvInteger", U8, &[T, Slot::Of(Q), Slot::Of(Q), Slot::Of(Q)], &[Output::Of(ElementType::I32)])
        .since(10)
        .least(2)
        .with(CONVOLUTION),
    Rule::new("DequantizeLinear", Q | INT32, &[T, Slot::Of(F), T], &[Output::Like(1)])
        .since(10)
        .least(2)
        .with(&[("axis", Check::Any), ("block_size", Check::Int(0)), ("output_dtype", Check::Int(0))])
        .shrinks(),
    Rule::new(
        "DynamicQuantizeLinear",
        F,
        &[T],
        &[Output::Of(ElementType::U8), Output::Of(ElementType::F32), Output::Of(ElementType::U8)],
    )
    .since(11)
    .shrinks(),
    Rule::new("MatMulInteger", Q, &[T, Slot::Of(Q), Slot::Of(Q), Slot::Of(Q)], &[Output::Of(ElementType::I32)])
        .since(10)
        .least(2),
    Rule::new("QuantizeLinear", F, &[T, Slot::Of(F), Slot::Of(Q)], &[Output::Like(2)]).since(10).with(&[
        ("axis", Check::Any),
        ("block_size", Check::Int(0)),
        ("output_dtype", Check::Any),
        ("precision", Check::Int(0)),
        ("saturate", Check::Int(1)),
    ]),
];
