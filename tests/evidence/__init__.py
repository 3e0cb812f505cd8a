"""The evidence for the checker: thousands of small programs, judged by the oracle, against what the checker says.

python -m tests.evidence --size 1.0 --seed 1     judges them all and writes docs/evidence.md (`make evidence`)

hand       figures, chips and layouts that the hand-written generators draw      stages   sections of three stages
pipelines products caches sections unusual blocks epochs places       programs that no pass made
graphs     programs that the passes made of random graphs for random chips
bases      programs to mutate      flat      without loops      edits     where a program can be edited
mistakes   what a class of mistakes is, and by subject (mistakes_of_*) all there are      classes  their table
verdicts   one instance: what oracle and checker say      plan   which instances there are
growth     time and memory of whole decoders      document   docs/evidence.md
"""
