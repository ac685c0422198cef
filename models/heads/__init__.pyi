from .base import Head as Head, Targets as Targets, load_head as load_head, make_head as make_head
