"""Rows and settings as TRL's users have them, and a tokenizer for them: what TRL makes of them is in fixtures/trl."""

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast


#: Templates in the form of ChatML: as most are, and with marks around what the assistant says.
PLAIN = (
    "{% if tools %}<|im_start|>tools\n{{ tools | tojson }}<|im_end|>\n{% endif %}"
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% if style is defined %}[{{ style }}]{% endif %}{% endif %}"
)
MARKED = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['role'] == 'assistant' %}{% generation %}{{ message['content'] }}<|im_end|>{% endgeneration %}\n"
    "{% else %}{{ message['content'] }}<|im_end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TEMPLATES = {"plain": PLAIN, "marked": MARKED}

USER, ANSWER = {"role": "user", "content": "the cat"}, {"role": "assistant", "content": "le chat"}
MORE, END = {"role": "user", "content": "a dog?"}, {"role": "assistant", "content": "un chien"}
SYSTEM = {"role": "system", "content": "Translate."}
CHAT = [SYSTEM, USER, ANSWER, MORE, END]
PAIRS = [{"prompt": "the cat", "completion": " le chat"}, {"prompt": "a", "completion": " un chien qui dort"}]
CHAT_PAIRS = [{"prompt": [USER], "completion": [ANSWER]}, {"prompt": [USER, ANSWER, MORE], "completion": [END]}]
TOOL = {"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": {"type": "object"}}}
TEXTS = ["the cat", "a dog sleeps", "", "so", "the old car", "we see a long road to the sea", "my hat", "now"]


def shout(row):
    return f"{row['one'].upper()} {row['two']}"


CASES = {
    "text": {"rows": [{"text": text} for text in TEXTS if text]},
    "text that ends": {"rows": [{"text": "the cat<|end|>"}]},
    "other field": {"rows": [{"content": "the cat"}], "settings": {"dataset_text_field": "content"}},
    "max_length": {"rows": [{"text": text} for text in TEXTS if text], "settings": {"max_length": 6}},
    "formatting_func": {"rows": [{"one": "a", "two": "b"}, {"one": "cc", "two": "d"}], "func": shout},
    "pairs": {"rows": PAIRS},
    "cut pairs": {"rows": PAIRS, "settings": {"max_length": 9}},
    "pairs without a target": {"rows": PAIRS, "settings": {"max_length": 7}},
    "whole pairs": {"rows": PAIRS, "settings": {"completion_only_loss": False}},
    "whole chat": {"rows": [{"messages": CHAT}], "settings": {"assistant_only_loss": False}},
    "marked chat": {
        "rows": [{"messages": CHAT}, {"messages": CHAT[1:3]}],
        "settings": {"assistant_only_loss": True},
        "template": "marked",
    },
    "from and value": {
        "rows": [{"conversations": [{"from": one["role"], "value": one["content"]} for one in CHAT]}],
        "settings": {"assistant_only_loss": False},
    },
    "chat pairs": {"rows": CHAT_PAIRS},
    "marked chat pairs": {"rows": CHAT_PAIRS, "settings": {"assistant_only_loss": True}, "template": "marked"},
    "whole chat pairs": {
        "rows": CHAT_PAIRS,
        "settings": {"completion_only_loss": False, "assistant_only_loss": False},
    },
    "tools": {
        "rows": [{"messages": CHAT, "tools": [TOOL]}],
        "settings": {"assistant_only_loss": False},
    },
    "tools as JSON": {
        "rows": [{"messages": CHAT, "tools": '[{"name": "look"}]'}],
        "settings": {"assistant_only_loss": False},
    },
    "template options": {
        "rows": [{"prompt": [USER], "completion": [ANSWER], "chat_template_kwargs": {"style": "short"}}],
        "settings": {"assistant_only_loss": False},
    },
    "tokens": {"rows": [{"input_ids": [5, 6, 7, 8]}, {"input_ids": [5, 9]}]},
    "assistant masks": {"rows": [{"input_ids": [5, 6, 7, 8], "assistant_masks": [0, 1, 0, 1]}]},
    "both masks": {
        "rows": [{"input_ids": [5, 6, 7, 8], "assistant_masks": [0, 1, 0, 1], "completion_mask": [0, 0, 1, 1]}],
        "settings": {"completion_only_loss": True},
    },
    "labels": {
        "rows": [{"input_ids": [5, 6, 7, 8], "labels": [-100, 6, 7, 8]}, {"input_ids": [5, 6], "labels": [-100, 6]}],
        "settings": {"max_length": 3},
    },
    "packing": {"rows": [{"text": text} for text in TEXTS if text], "settings": {"max_length": 32, "packing": True}},
    "packed pairs": {"rows": PAIRS * 5, "settings": {"max_length": 40, "packing": True}},
    "eos_token": {"rows": [{"text": "the cat"}], "settings": {"eos_token": "<|im_end|>"}},
}


def make_byte_tokenizer(template="plain"):
    """A fast tokenizer whose tokens are bytes: its ids do not depend on any training."""
    special = ["<|pad|>", "<|end|>", "<|im_start|>", "<|im_end|>"]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({symbol: number for number, symbol in enumerate([*special, *alphabet])}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in special])
    made = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<|pad|>", eos_token="<|end|>")
    made.chat_template = TEMPLATES[template]
    return made
