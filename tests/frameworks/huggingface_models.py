"""Creates tiny models of transformers, with random weights and tokenizers of a few words."""

import json
import pathlib
from typing import Any, Dict, List

_TEXT = (
    "[PAD] [UNK] [CLS] [SEP] [MASK] <s> </s> a the cat dog sat on mat is good bad very not where who what lives in town "
    "house this movie was great awful about sport politics science and , . ? ! i you we like hate him her it to of"
)
WORDS = _TEXT.split()
LABELS = {0: "NEGATIVE", 1: "POSITIVE"}
#: Sizes that all text models share.
SMALL: Dict[str, Any] = {
    "vocab_size": len(WORDS),
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "max_position_embeddings": 48,
}


def seeded(kind: Any, config: Any) -> Any:
    """Returns a model with deterministic weights that distinguish inputs."""
    import torch

    torch.manual_seed(7)
    model = kind(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1 and "norm" not in name.lower():
                parameter.normal_(0, 0.4)
    return model


def bert_tokenizer(folder: pathlib.Path) -> Any:
    """Returns a tokenizer of whole words."""
    from transformers import BertTokenizerFast

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    return BertTokenizerFast(str(folder / "vocab.txt"), model_max_length=512)


def word_tokenizer(pad: bool) -> Any:
    """Returns a tokenizer of whole words for generative models."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast

    # Words include the space before them, so that pieces of a text can be joined.
    spaced = {word if word[0] in "[<" else f"\u0120{word}": index for index, word in enumerate(WORDS)}
    tokenizer = Tokenizer(models.WordLevel(spaced, "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    special = {"unk_token": "[UNK]", "bos_token": "<s>", "eos_token": "</s>"}
    if pad:
        special["pad_token"] = "[PAD]"
        end = WORDS.index("</s>")
        tokenizer.post_processor = TemplateProcessing(single="$A </s>", special_tokens=[("</s>", end)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)


def bert(folder: pathlib.Path, head: str, **settings: Any) -> None:
    """Saves a model of the BERT family with one of its heads."""
    import transformers

    bert_tokenizer(folder).save_pretrained(folder)
    config = transformers.BertConfig(**SMALL, **settings)
    seeded(getattr(transformers, f"BertFor{head}" if head else "BertModel"), config).save_pretrained(folder)


def gpt(folder: pathlib.Path) -> None:
    """Saves a model that continues a text; its tokenizer has no padding token."""
    from transformers import GPT2Config, GPT2LMHeadModel

    end = WORDS.index("</s>")
    sizes = {"n_positions": 48, "n_embd": 16, "n_layer": 1, "n_head": 2}
    config = GPT2Config(vocab_size=len(WORDS), bos_token_id=end - 1, eos_token_id=end, **sizes)
    word_tokenizer(pad=False).save_pretrained(folder)
    seeded(GPT2LMHeadModel, config).save_pretrained(folder)


def bart(folder: pathlib.Path) -> None:
    """Saves a text-to-text model."""
    from transformers import BartConfig, BartForConditionalGeneration

    end = WORDS.index("</s>")
    layers = {f"{side}_{what}": size for side in ("encoder", "decoder") for what, size in
              (("layers", 1), ("attention_heads", 2), ("ffn_dim", 16))}  # fmt: skip
    config = BartConfig(
        vocab_size=len(WORDS), d_model=16, max_position_embeddings=48, pad_token_id=0, bos_token_id=end - 1,
        eos_token_id=end, decoder_start_token_id=end, forced_eos_token_id=end, max_length=8, **layers)  # fmt: skip
    word_tokenizer(pad=True).save_pretrained(folder)
    seeded(BartForConditionalGeneration, config).save_pretrained(folder)


def vit(folder: pathlib.Path) -> None:
    """Saves a classifier of images of 16 by 16 pixels."""
    from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessor

    config = ViTConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, image_size=16, patch_size=8,
        id2label={0: "cat", 1: "dog", 2: "mat"}, label2id={"cat": 0, "dog": 1, "mat": 2})  # fmt: skip
    ViTImageProcessor(size={"height": 16, "width": 16}).save_pretrained(folder)
    seeded(ViTForImageClassification, config).save_pretrained(folder)


def segformer(folder: pathlib.Path) -> None:
    """Saves a model that segments images."""
    from transformers import SegformerConfig, SegformerForSemanticSegmentation, SegformerImageProcessor

    config = SegformerConfig(
        num_encoder_blocks=2, depths=[1, 1], sr_ratios=[2, 1], hidden_sizes=[8, 8], patch_sizes=[7, 3], strides=[4, 2],
        num_attention_heads=[1, 1], mlp_ratios=[2, 2], decoder_hidden_size=8,
        id2label={0: "floor", 1: "cat"}, label2id={"floor": 0, "cat": 1})  # fmt: skip
    SegformerImageProcessor(size={"height": 16, "width": 16}).save_pretrained(folder)
    seeded(SegformerForSemanticSegmentation, config).save_pretrained(folder)


def wav2vec(folder: pathlib.Path, ctc: bool) -> None:
    """Saves an audio model that classifies or transcribes."""
    from transformers import (
        Wav2Vec2Config,
        Wav2Vec2CTCTokenizer,
        Wav2Vec2FeatureExtractor,
        Wav2Vec2ForCTC,
        Wav2Vec2ForSequenceClassification,
    )

    letters: List[str] = ["<pad>", "<s>", "</s>", "<unk>", "|", *"abcdef"]
    config = Wav2Vec2Config(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, conv_dim=[8, 8],
        conv_stride=[5, 4], conv_kernel=[10, 8], num_feat_extract_layers=2, num_conv_pos_embeddings=4,
        num_conv_pos_embedding_groups=2, classifier_proj_size=8, vocab_size=len(letters), pad_token_id=0,
        id2label={0: "quiet", 1: "loud"}, label2id={"quiet": 0, "loud": 1})  # fmt: skip
    Wav2Vec2FeatureExtractor(sampling_rate=16000).save_pretrained(folder)
    if ctc:
        vocabulary = folder / "vocab.json"
        vocabulary.write_text(json.dumps({letter: index for index, letter in enumerate(letters)}))
        Wav2Vec2CTCTokenizer(str(vocabulary)).save_pretrained(folder)
    seeded(Wav2Vec2ForCTC if ctc else Wav2Vec2ForSequenceClassification, config).save_pretrained(folder)
