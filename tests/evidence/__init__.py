"""The evidence for the checker: thousands of small programs, judged by the oracle, against what the checker says.

python -m tests.evidence --size 1.0 --seed 1     judges them all and writes docs/evidence.md (`make evidence`)

hand       figures, chips and layouts that the hand-written generators draw
pipelines products caches sections partial       programs that no pass made
graphs     programs that the passes made of random graphs for random chips
bases      programs to mutate      edits     where a program can be edited      classes  mutants by named class
verdicts   one instance: what oracle and checker say      plan   which instances there are
growth     time and memory of whole decoders      document   docs/evidence.md
"""
