"""Grammars as users of llama.cpp and xgrammar write them, with texts they accept and refuse."""

from __future__ import annotations

ARITHMETIC = r"""
# sums, products, brackets
root   ::= expr
expr   ::= term (ws ("+" | "-") ws term)*
term   ::= factor (ws [*/] ws factor)*
factor ::= number | "(" ws expr ws ")" | "-" factor
number ::= [0-9]+ ("." [0-9]+)?
ws     ::= " "*
"""

JSON = r"""
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws

object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws

array  ::=
  "[" ws (
            value
    ("," ws value)*
  )? "]" ws

string ::=
  "\"" (
    [^"\\\x7F\x00-\x1F] |
    "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) # escapes
  )* "\"" ws

number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9]{1,15})? ws

# Optional space: by convention, applied in this grammar after literal chars when allowed
ws ::= | " " | "\n" [ \t]{0,20}
"""

CHESS = r"""
root ::= "1. " move " " move "\n" ([1-9] [0-9]? ". " move " " move "\n")+
move ::= (pawn | nonpawn | castle) [+#]?
# piece, optional file and rank, optional capture, destination
nonpawn ::= [NBKQR] [a-h]? [1-8]? "x"? [a-h] [1-8]
pawn ::= ([a-h] "x")? [a-h] [1-8] ("=" [NBKQR])?
castle ::= "O-O" "-O"?
"""

SQL = r"""
root ::= select ";"
select ::= "SELECT " columns " FROM " table where? order? limit?
columns ::= "*" | column (", " column)*
column ::= name | func "(" ("*" | name) ")"
func ::= "COUNT" | "SUM" | "AVG"
table ::= name | "(" select ")"
where ::= " WHERE " condition
condition ::= compare ((" AND " | " OR ") compare)*
compare ::= name op value | "(" condition ")" | name " IN " "(" select ")"
op ::= " = " | " <> " | " < " | " <= " | " > " | " >= " | " LIKE "
value ::= number | text | "NULL"
order ::= " ORDER BY " name (" ASC" | " DESC")?
limit ::= " LIMIT " [0-9]{1,6}
number ::= "-"? [0-9]+ ("." [0-9]+)?
text ::= "'" ([^'\n] | "''")* "'"
name ::= [a-z_] [a-z0-9_]*
"""

C_LIKE = r"""
root ::= (declaration)*
declaration ::= dataType identifier "(" parameter? ")" "{" statement* "}"
dataType ::= "int" ws | "float" ws | "char" ws
identifier ::= [a-zA-Z_] [a-zA-Z_0-9]*
parameter ::= dataType identifier
statement ::=
    ( dataType identifier ws "=" ws expression ";" ) |
    ( identifier ws "=" ws expression ";" ) |
    ( "return" ws expression ";" ) |
    ( "while" "(" condition ")" "{" statement* "}" ) |
    ( "if" "(" condition ")" "{" statement* "}" ("else" "{" statement* "}")? )
condition ::= expression ws relationOperator ws expression
relationOperator ::= ("<=" | "<" | "==" | "!=" | ">=" | ">")
expression ::= term (ws ("+" | "-") ws term)*
term ::= factor (ws ("*" | "/") ws factor)*
factor ::= identifier | number | "(" expression ")" | identifier "(" expression? ")"
number ::= [0-9]+
ws ::= ([ \t\n]+)
"""

LIST = r"""
root ::= item+
# Excludes various line break characters
item ::= "- " [^\r\n\x0b\x0c\x85\u2028\u2029]+ "\n"
"""

CITY = r"""
root ::= city | description
city ::= "London" | "Paris" | "Berlin" | "Rome"
description ::= city " is " status
status ::= "the capital of " country
country ::= "England" | "France" | "Germany" | "Italy"
"""

JAPANESE = r"""
root ::= jp-char+ ([ \t\n] jp-char+)*
jp-char ::= hiragana | katakana | punctuation | cjk
hiragana ::= [ぁ-ゟ]
katakana ::= [ァ-ヿ]
punctuation ::= [、-〾]
cjk ::= [一-鿿]
"""

ESCAPES = r"""root ::= 'it' 's' "\t\x41\u00e9\U0001F642\"\\" [\]\-\\^"a-c]{2} [^\]] .
"""

COUNTS = r"""
root ::= "a"{2} "b"{1,3} "c"{2,} "d"{,2} "e"{0} ("f" "g"?){2}"""

LEFT = r"""
root ::= sum
sum ::= sum "+" digit | digit
digit ::= [0-9]
"""

GREEDY = r"""
root ::= word "x" | "let " word " in " root
word ::= [a-z]+
"""

BRACKETS = r"""
root ::= "(" root ")" root | ""
"""

SAMPLES = {
    "arithmetic": (
        ARITHMETIC,
        ["1", "1+2*3", "(1 + 2) * -3.5", "((7))", "--4 / 2"],
        ["", "1+", "(1", "1..2", "1 2", "a"],
    ),
    "json": (
        JSON,
        ["{}", '{"a": 1}', '{"a":[1, 2.5e-3,{"b":null}], "c": "x\\n\\u00e9"}', '{\n  "a": true\n}'],
        ["", "[]", "{a: 1}", '{"a": 01}', '{"a": 1,}', '{"a": "\n"}', '{"a": tru}'],
    ),
    "chess": (
        CHESS,
        ["1. e4 e5\n2. Nf3 Nc6\n", "1. d4 d5\n12. O-O exd8=Q+\n", "1. a4 a5\n2. Rad1 O-O-O#\n"],
        ["1. e4 e5\n", "1. e9 e5\n2. e4 e5\n", "2. e4 e5\n3. e4 e5\n", "1. e4\n"],
    ),
    "sql": (
        SQL,
        [
            "SELECT * FROM t;",
            "SELECT a, COUNT(*) FROM users WHERE age >= 18 AND name LIKE 'O''H' LIMIT 10;",
            "SELECT a FROM (SELECT b FROM c WHERE (d = 1 OR e <> NULL)) ORDER BY a DESC;",
            "SELECT sum FROM from_ WHERE x IN (SELECT y FROM z);",
        ],
        ["SELECT FROM t;", "SELECT * FROM t", "SELECT a b FROM t;", "SELECT * FROM t WHERE ;"],
    ),
    "c-like": (
        C_LIKE,
        [
            "",
            "int main(){return 0;}",
            "int f(int x){int y = x * 2;while(y < 10){y = y + 1;}return f(y);}",
            "float g(){if(a == b){c = 1;}else{c = (2 + d) / 3;}}char h(){return returned;}",
        ],
        ["int main()", "int main(){return;}", "int (){}", "int f(int){}", "main(){}"],
    ),
    "list": (LIST, ["- a\n", "- milk & eggs\n- 日本\n"], ["", "- a", "* a\n", "- \n"]),
    "city": (
        CITY,
        ["London", "Paris is the capital of France"],
        ["", "Lond", "Madrid", "Paris is", "Rome is the capital of "],
    ),
    "japanese": (JAPANESE, ["こんにちは", "日本 カタカナ"], ["hello", "日本 ", "", "日本  日本"]),
    "escapes": (
        ESCAPES,
        ['its\tAé🙂"\\]-xé', 'its\tAé🙂"\\^"日\n'],
        ['its\tAé🙂"\\dd]x', 'its\tAé🙂"\\aa]x', "its"],
    ),
    "counts": (
        COUNTS,
        ["aabccff", "aabbbcccddfgfg", "aabccdffg"],
        ["aabcff", "abccff", "aabbbbccff", "aabccdddff", "aabcceff", "aabccf"],
    ),
    "left recursion": (LEFT, ["1", "1+2", "1+2+3+4"], ["", "1+", "+1", "12"]),
    "greedy": (
        GREEDY,
        ["ax", "xx", "xxx", "let x in ax", "let let in let y in abcx", "letx"],
        ["x", "a", "let in x", "let a in b"],
    ),
    "brackets": (BRACKETS, ["", "()", "(())()", "((()()))"], ["(", ")", "())", "(()"]),
}
