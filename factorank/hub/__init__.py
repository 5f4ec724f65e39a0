"""Models on the Hugging Face Hub: uploaded with a card of their training, found again by name."""

from factorank.hub.card import model_card
from factorank.hub.repository import fetched, push

__all__ = ["fetched", "model_card", "push"]
