from .questions import reports_of as reports_of, texts_of as texts_of
