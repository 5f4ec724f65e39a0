"""How values are drawn, on tensors alone: categoricals, what is put at a position, drafts and searches."""
