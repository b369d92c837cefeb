"""accelerate: the hooks of context parallelism replace every mask by a causal one, whatever it said: padding on the left becomes
visible. One process; the hooks are those that Accelerator.prepare attaches when cp_size > 1."""

import torch
from accelerate.big_modeling import _attach_context_parallel_hooks
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
model = LlamaForCausalLM(
    LlamaConfig(
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=128,
    )
)
ids = torch.randint(1, 128, (1, 16))
for side in ("right", "left"):
    mask = torch.ones(1, 16, dtype=torch.long)
    mask[:, slice(12, 16) if side == "right" else slice(0, 4)] = 0
    real = mask[0].bool()
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    with torch.no_grad():
        before = model(input_ids=ids, attention_mask=mask, position_ids=positions).logits[0, real]
        copy = LlamaForCausalLM(model.config)
        copy.load_state_dict(model.state_dict())
        _attach_context_parallel_hooks(copy)
        after = copy(input_ids=ids, attention_mask=mask, position_ids=positions).logits[0, real]
    print(
        f"padded {side}: largest change of a logit at a real token {float((before - after).abs().max()):.2e}, expected about 0"
    )
