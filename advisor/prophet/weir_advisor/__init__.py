"""An advisor for Weir on Prophet or ETS: it forecasts demand, and advises limits over HTTP.

The modules, each with one concern:

- ``config``: advisor.yaml, and the digest of its rules;
- ``prometheus``: series of the past;
- ``models``: what a model is; ``model_prophet`` and ``model_ets``: those that there are;
- ``forecast``: a forecast, its band, and its skill on its own history;
- ``demand``: what to advise for a rule, or why nothing;
- ``advice``: the document that proxies get, and its signature;
- ``advisor``: the turns in which all rules are computed;
- ``service``: the HTTP endpoints.
"""
