"""Trains a tiny model on a rhyme, and saves it in the folder `model`. Replace it by your own model, or set a model on the hub
(`"pretrained_model": "gpt2"`) in `model-settings.json`.
"""

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

RHYME = "mary had a little lamb its fleece was white as snow and everywhere that mary went the lamb was sure to go"

spoken = [*RHYME.split(), "</s>"]
words = sorted(set(spoken))
vocabulary = {word if word == "</s>" else f"\u0120{word}": index for index, word in enumerate(words)}
tokenizer = Tokenizer(models.WordLevel(vocabulary, "</s>"))
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
tokenizer.decoder = decoders.ByteLevel()
PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>", unk_token="</s>").save_pretrained("model")

torch.manual_seed(1)
end = words.index("</s>")
config = GPT2Config(
    vocab_size=len(words), n_positions=32, n_embd=16, n_layer=1, n_head=2, bos_token_id=end, eos_token_id=end
)
model = GPT2LMHeadModel(config)
tokens = torch.tensor([[words.index(word) for word in spoken]])
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for _ in range(300):
    optimizer.zero_grad()
    loss = model(tokens, labels=tokens).loss
    loss.backward()
    optimizer.step()
model.eval().save_pretrained("model")
print(f"wrote model, whose loss is {loss.item():.1f}")
