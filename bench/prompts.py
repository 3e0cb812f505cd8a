"""The three texts that accuracy is measured on; each is cut to its first 64 tokens."""
# ruff: noqa: E501

TEXTS = (
    "The history of the printing press begins in the fifteenth century, when Johannes Gutenberg, a goldsmith from Mainz, "
    "combined movable metal type with an oil-based ink and a wooden press adapted from those used for wine. Within fifty "
    "years, presses in more than two hundred cities had printed millions of books, and the price of a volume fell.",
    "def fibonacci(n):\n    if n < 2:\n        return n\n    a, b = 0, 1\n    for _ in range(n - 1):\n        a, b = b, a + b\n"
    "    return b\n\nclass Queue:\n    def __init__(self, size):\n        self.items = [None] * size\n        self.head = 0\n",
    "<|im_start|>user\nWhat is the difference between a compiler and an interpreter? Answer in three short sentences."
    "<|im_end|>\n<|im_start|>assistant\nA compiler translates a whole program into machine code before it runs. An "
    "interpreter reads the program and carries out each statement as it comes. Compiled programs usually run faster, but each change needs a new translation.",
)
POSITIONS = 64
