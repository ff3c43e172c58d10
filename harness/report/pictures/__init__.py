"""Pictures of records: charts with matplotlib, for notebooks and for the page that ``report --html`` writes."""
