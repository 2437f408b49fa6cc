-- Do nothing. It is applied in place of a record of the journal that is not a call of any script. Answers the version.

return version
