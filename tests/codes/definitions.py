"""The codes as their definitions read, on Python lists: what every implementation is compared with."""


def lehmer(order: list[int]) -> list[int]:
    return [sum(later < x for later in order[i + 1 :]) for i, x in enumerate(order)]


def left_lehmer(order: list[int]) -> list[int]:
    return [sum(earlier > x for earlier in order[:i]) for i, x in enumerate(order)]


def insertion(order: list[int]) -> list[int]:
    """Take the items out again, last first, and note where each was."""
    rest, slots = list(order), []
    for item in reversed(range(len(order))):
        slots.append(rest.index(item))
        rest.remove(item)
    return slots[::-1]


def fisher_yates(order: list[int]) -> list[int]:
    shelf, draws = list(range(len(order))), []
    for i, x in enumerate(order):
        j = shelf.index(x)
        draws.append(j - i)
        shelf[i], shelf[j] = shelf[j], shelf[i]
    return draws


def inline(order: list[int]) -> list[int]:
    return list(order)


DEFINITIONS = {
    "inline": inline,
    "lehmer": lehmer,
    "left-lehmer": left_lehmer,
    "fisher-yates": fisher_yates,
    "insertion": insertion,
}
