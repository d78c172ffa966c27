"""Every copy on the hub that a reader knows by its name, with tiny rows in the layout of the release."""

from helpers.hub_layouts import (
    Layout,
    ai2,
    asqa_rows,
    cwq,
    grailqa,
    graphquestions,
    hotpot,
    multiarith,
    oasst,
    openbookqa,
    popqa,
    read_table,
    strategyqa,
    trivia,
    trivia_rows,
    two_wiki,
    two_wiki_columns,
    two_wiki_text,
    write_asqa,
    write_table,
    write_trivia,
)

DUNE = {"_id": "q", "question": "Who made Dune?", "answer": "Torvel", "type": "compositional"}
PARAGRAPHS = {"context": [["Dune", ["A film.", " By Torvel."]], ["Oslo", ["A city."]]], "supporting_facts": [["Dune", 1]]}
TWO_WIKI = DUNE | PARAGRAPHS | {"evidences": [["Dune", "director", "Torvel"]]}
MUSIQUE = {
    "id": "2hop",
    "question": "Where was Dune's maker born?",
    "answer": "Lyon",
    "answer_aliases": ["Lugdunum"],
    "paragraphs": [{"idx": 0, "title": "Dune", "paragraph_text": "By Torvel.", "is_supporting": True}],
    "question_decomposition": [{"id": 1, "question": "Who?", "answer": "Torvel", "paragraph_support_idx": 0}],
}
CHOICES = {"stem": "Dune is a", "choices": [{"text": "film", "label": "1"}, {"text": "city", "label": "2"}]}
KQAPRO = {"question": "How many?", "choices": ["1", "2"], "answer": "2"}
AQUA = {"question": "1+1?", "options": ["A)1", "B)2"], "correct": "B", "rationale": "Add."}
QRECC = {
    "Conversation_no": 1,
    "Turn_no": 2,
    "Context": ["Who made Dune?", "Torvel."],
    "Question": "Born?",
    "Rewrite": "Where was Torvel born?",
}
TREE = {
    "prompt": {
        "message_id": "a",
        "text": "Who made Dune?",
        "replies": [
            {"message_id": "b", "text": "Who knows.", "rank": 1, "replies": []},
            {"message_id": "c", "text": "Torvel.", "rank": 0, "replies": [{"message_id": "d", "text": "Born?", "replies": []}]},
        ],
    }
}
MESSAGES = [{"role": "user", "content": "Who made Dune?"}, {"role": "assistant", "content": "[A_Response]\nTorvel\n[EOS]"}]
FLASHRAG = {"id": "test_0", "question": "Who made Dune?", "golden_answers": ["Torvel"], "metadata": {"s_pop": 7}}
PAIR = {"question": "Which one?", "short_answers": ["Ann"], "context": "Ann did.", "wikipage": "Ann"}
ASQA = {"sample_id": "-7", "ambiguous_question": "Who?", "qa_pairs": [PAIR], "annotations": [{"long_answer": "Ann.", "knowledge": []}]}
TRIVIA = {
    "QuestionId": "tc_1",
    "Question": "Who made Dune?",
    "Answer": {"Value": "Torvel", "Aliases": ["Maria Torvel", "Torvel"]},
    "EntityPages": [{"Filename": "Dune.txt", "Title": "Dune", "text": "By Torvel."}],
}
ORCA = {"id": "flan.7", "system_prompt": "Be brief.", "question": "Who made Dune?", "response": "Torvel."}
ALPACA = {"instruction": "Sort the names.", "input": "Torvel, Ann", "output": "Ann, Torvel"}
NO_STEPS = frozenset({"decomposition", "supporting", "passages"})

LAYOUTS = {
    "hotpotqa": Layout(
        "hotpotqa", "hotpotqa/hotpot_qa", (DUNE | PARAGRAPHS,), hotpot, "hotpotqa/hotpot_dev_distractor_v1.json", "distractor"
    ),
    "two_wiki": Layout("two_wiki", "framolfese/2WikiMultihopQA", (TWO_WIKI,), two_wiki, "2wikimultihopqa/dev.json"),
    "two_wiki_text": Layout("two_wiki", "xanhho/2WikiMultihopQA", (TWO_WIKI,), two_wiki_text, "2wikimultihopqa/train.json"),
    "two_wiki_columns": Layout("two_wiki", "ohjoonhee/2WikiMultihopQA", (TWO_WIKI,), two_wiki_columns, "2wikimultihopqa/train.json"),
    "musique": Layout("musique", "dgslibisey/MuSiQue", (MUSIQUE,), file="musique/musique_ans_v1.0_dev.jsonl"),
    "strategyqa": Layout(
        "strategyqa",
        "ChilleD/StrategyQA",
        ({"qid": "s", "question": "Is it?", "answer": True, "decomposition": ["What?"], "evidence": [[[["Dune-1"]]]]},),
        strategyqa,
        "strategyqa/train.json",
        lacks=NO_STEPS,
    ),
    "arc": Layout(
        "arc",
        "allenai/ai2_arc",
        ({"id": "m", "question": CHOICES, "answerKey": "2"},),
        ai2,
        "arc/ARC-Challenge-Test.jsonl",
        "ARC-Challenge",
    ),
    "openbookqa": Layout(
        "openbookqa",
        "allenai/openbookqa",
        ({"id": "7-1", "question": CHOICES, "answerKey": "1", "fact1": "Dune was filmed"},),
        openbookqa,
        "schema_fixtures/openbookqa_train_complete.jsonl",
        "additional",
    ),
    "arc_easy": Layout(
        "arc", "allenai/ai2_arc", ({"id": "e", "question": CHOICES, "answerKey": "1"},), ai2, "arc/ARC-Easy-Test.jsonl", "ARC-Easy"
    ),
    "openbookqa_main": Layout(
        "openbookqa",
        "allenai/openbookqa",
        ({"id": "7-2", "question": CHOICES, "answerKey": "2"},),
        openbookqa,
        "openbookqa/test.jsonl",
        "main",
    ),
    "cwq": Layout(
        "cwq",
        "drt/complex_web_questions",
        (
            {
                "ID": "w",
                "question": "Who made Dune?",
                "compositionality_type": "composition",
                "answers": [{"answer": None, "aliases": ["M. Torvel"], "answer_id": "m.1"}],
            },
        ),
        cwq,
        "cwq/ComplexWebQuestions_test.json",
    ),
    "grailqa": Layout(
        "grailqa",
        "dki-lab/grail_qa",
        ({"qid": 7, "question": "How many?", "level": "zero-shot", "answer": [{"answer_type": "Value", "answer_argument": 2}]},),
        grailqa,
        "grailqa/grailqa_v1.0_dev.json",
    ),
    "graphquestions": Layout(
        "graphquestions",
        "drt/graph_questions",
        ({"qid": 7, "question": "Who?", "answer": ["Torvel"], "function_category": "none"},),
        graphquestions,
        "graphquestions/graphquestions.testing.json",
    ),
    "kqapro": Layout("kqapro", "drt/kqa_pro", (KQAPRO,), file="kqapro/test.json", has_ids=False),
    "kqapro_answers": Layout(
        "kqapro",
        "drt/kqa_pro",
        ({"question": "How many?", "answer": "2"},),
        file="kqapro/train_val_qa.json",
        config="train_val",
        has_ids=False,
    ),
    "aqua_rat": Layout("aqua_rat", "deepmind/aqua_rat", (AQUA,), file="aqua_rat/test.json", config="raw", has_ids=False),
    "multiarith": Layout(
        "multiarith",
        "ChilleD/MultiArith",
        ({"iIndex": 1, "sQuestion": "How many?", "lSolutions": [5.0]},),
        multiarith,
        "multiarith/MultiArith.json",
        has_ids=False,
    ),
    "nq_open": Layout(
        "nq_open",
        "google-research-datasets/nq_open",
        ({"question": "Who?", "answer": ["Torvel", "T"]},),
        file="nq_open/NQ-open.dev.jsonl",
        has_ids=False,
    ),
    "oasst": Layout("oasst", "OpenAssistant/oasst1", (TREE,), oasst, "oasst/en_tree.jsonl"),
    "qrecc": Layout("qrecc", "svakulenk0/qrecc", (QRECC,)),
    "flashrag": Layout("flashrag", "RUC-NLPIR/FlashRAG_datasets", (FLASHRAG,), file="popqa/popqa_flashrag.jsonl", config="popqa"),
    "rq_rag": Layout("rq_rag", "zorowin123/rq_rag", ({"id": "r", "dataset": "arc", "messages": MESSAGES},)),
    "openorca": Layout("openorca", "Open-Orca/OpenOrca", (ORCA, ORCA | {"id": "t0.8", "system_prompt": ""})),
    "gpt4_alpaca": Layout("gpt4_alpaca", "vicgalle/alpaca-gpt4", (ALPACA, ALPACA | {"input": ""}), has_ids=False),
    "wizardlm": Layout(
        "wizardlm", "WizardLMTeam/WizardLM_evol_instruct_70k", ({"instruction": "Name a film.", "output": "Dune."},), has_ids=False
    ),
    "lima": Layout("lima", "GAIR/lima", ({"conversations": ["Who?", "Torvel.", "Born?", "Lyon."], "source": "authors"},), has_ids=False),
    "popqa": Layout(
        "popqa",
        "akariasai/PopQA",
        ({"id": "7", "question": "What is it?", "possible_answers": '["politician", "pol"]', "s_pop": "99"},),
        popqa,
        "popqa/popQA.tsv",
        has_ids=False,
        rows_of=read_table,
        write=write_table,
    ),
    "asqa": Layout("asqa", "din0s/asqa", (ASQA,), file="schema_fixtures/ASQA.json", rows_of=asqa_rows, write=write_asqa),
    "triviaqa": Layout(
        "triviaqa",
        "mandarjoshi/trivia_qa",
        (TRIVIA,),
        trivia,
        "schema_fixtures/triviaqa_rc/qa/wikipedia-train.json",
        "rc.wikipedia",
        rows_of=trivia_rows,
        write=write_trivia,
    ),
}
